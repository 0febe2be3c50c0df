"""The layers of the project: direction of imports, homes of libraries, sizes of folders and files."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# each may import those before it
LAYERS = ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads")
TORCH = ("simulator/engines/*", "training/*")
QUARANTINE = {  # library -> files that may import it
    "langgraph": ("simulator/graph/*", "simulator/governance/*"),
    "torch": TORCH,
    "transformers": TORCH,
    "peft": ("simulator/engines/*", "training/*"),
    "trl": ("training/roles/*", "training/feedback/*"),
    "vllm": ("simulator/engines/vllm/*",),
    "openai": ("simulator/engines/openai/*",),
    "fastapi": ("serving/*",),
    "starlette": ("serving/*",),
    "mcp": ("serving/endpoint/mcp_server.py",),
    "a2a": ("serving/endpoint/*",),
    "gguf": ("training/*",),
    "uvicorn": ("serving/*",),
    "pettingzoo": ("simulator/export/pettingzoo_env.py",),
    "gymnasium": ("simulator/export/pettingzoo_env.py", "serving/environments/gymnasium_env.py"),
    "openenv": ("serving/environments/openenv_env.py",),
    "httpx": ("simulator/engines/vllm/server_client.py",),
    "httpx2": ("simulator/engines/openai/*",),
}
TRAINING_LEVELS = (  # inside training; each level may import those before it
    {"config"},
    {"runs"},
    {"learner", "data", "models"},
    {"roles", "joint", "planning", "export"},
    {"feedback"},
    {"stages"},
)
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "handler"}
SOURCES = sorted(
    path.relative_to(ROOT).as_posix() for layer in LAYERS for path in (ROOT / layer).rglob("*.py")
)


@cache
def read(path: str) -> str:
    return (ROOT / path).read_text()


def list_imports(source: str) -> set[str]:
    """Dotted names of all imported modules, wherever in the file the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("relative" if node.level else node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "__import__",
        ):
            names.update(
                arg.value for arg in node.args if isinstance(arg, ast.Constant) and type(arg.value) is str
            )
    return names


def find_violations(path: str, source: str) -> Iterator[str]:
    layer = path.split("/")[0]
    for name in sorted(list_imports(source)):
        top = name.split(".")[0]
        if top == "relative":
            yield f"{path} uses a relative import"
        if top in LAYERS and LAYERS.index(top) > LAYERS.index(layer):
            yield f"{path} imports {name}: {layer} stands below {top}"
        if top in ("tests", "benchmarks"):
            yield f"{path} imports {name}, which is not installed"
        if top in QUARANTINE and not any(fnmatch(path, pattern) for pattern in QUARANTINE[top]):
            yield f"{path} imports {name}, which belongs to {', '.join(QUARANTINE[top])}"
    if FORBIDDEN_NAMES & set(Path(path).stem.split("_")):
        yield f"{path} has a name that says nothing"


def find_training_violations(path: str, source: str) -> Iterator[str]:
    """Imports from one folder of training to another that goes against TRAINING_LEVELS."""
    level = {folder: number for number, folders in enumerate(TRAINING_LEVELS) for folder in folders}
    own = path.split("/")[1]
    for name in sorted(list_imports(source)):
        parts = name.split(".")
        other = parts[1] if parts[0] == "training" and len(parts) > 1 else own
        if level.get(other, 0) > level.get(own, len(TRAINING_LEVELS)):
            yield f"{path} imports {name}: training/{own} stands below training/{other}"


def test_imports_inside_training_go_one_way() -> None:
    inside = [path for path in SOURCES if path.startswith("training/")]
    assert [found for path in inside for found in find_training_violations(path, read(path))] == []


def test_the_check_finds_violations_inside_training() -> None:
    source = "def f():\n    from training.models.base_model import quiet_libraries"
    (found,) = find_training_violations("training/runs/workers.py", source)
    assert "training/runs stands below training/models" in found
    assert not list(find_training_violations("training/stages/sft.py", source))


def test_imports_go_one_way_and_libraries_stay_in_quarantine() -> None:
    assert [found for path in SOURCES for found in find_violations(path, read(path))] == []


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("roles/cto.py", "from scenarios.base import Scenario", "roles stands below scenarios"),
        ("evaluation/report/page.py", "def f():\n    import training.runs.resume", "stands below training"),
        ("scenarios/reconcile.py", "import torch", "belongs to simulator/engines/*"),
        ("simulator/reward.py", "from langgraph.graph import StateGraph", "belongs to simulator/graph/*"),
        ("training/learner/learner.py", "import trl", "belongs to training/roles/*"),
        ("training/learner/learner.py", "if True:\n    from vllm import LLM", "belongs to simulator/engines"),
        ("training/rl/loop.py", "import importlib\nimportlib.import_module('vllm')", "engines/vllm/*"),
        ("emads/commands/train.py", "from benchmarks.scenarios import team_tables", "not installed"),
        ("roles/cto.py", "from .base import Role", "relative import"),
        ("training/data_utils.py", "", "a name that says nothing"),
    ],
)
def test_the_check_finds_violations(path: str, source: str, violation: str) -> None:
    assert any(violation in found for found in find_violations(path, source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("training/learner/learner.py", "import torch\nfrom simulator.records import Turn"),
        ("simulator/engines/vllm/library.py", "from vllm import LLM"),
        ("serving/environments/http_env.py", "import fastapi"),
    ],
)
def test_the_check_lets_the_layers_work(path: str, source: str) -> None:
    assert list(find_violations(path, source)) == []


def test_the_rules_name_files_that_exist() -> None:
    patterns = {pattern for homes in QUARANTINE.values() for pattern in homes}
    assert [pattern for pattern in patterns if not any(fnmatch(path, pattern) for path in SOURCES)] == []


def test_every_package_says_what_belongs_there() -> None:
    folders = sorted(path for path in SOURCES if path.endswith("__init__.py"))
    docstrings = {path: ast.get_docstring(ast.parse(read(path))) or "" for path in folders}
    assert [path for path, text in docstrings.items() if len(text.split("\n")) < 2] == []


def test_roles_scenarios_and_simulator_work_without_torch() -> None:
    modules = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in SOURCES]
    light = [name for name in modules if name.split(".")[0] in LAYERS[:3] and ".engines." not in name]
    assert {"roles.registry", "scenarios.registry", "scenarios.team", "simulator.records"} <= set(light)
    program = (
        "import sys, importlib\n"
        "for name in ('torch', 'transformers', 'peft', 'trl', 'vllm', 'accelerate'):\n"
        "    sys.modules[name] = None\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "from scenarios.registry import FAMILIES\n"
        "for family in FAMILIES.values():\n"
        "    scenario = family.generate('train', 0, 0, 1)\n"
        "    assert family.verify(scenario, '').reward == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *light, "simulator.engines.base"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_package_is_installed_by_the_project_file() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{layer}*"' in project for layer in LAYERS)
    assert all((ROOT / path).parent.joinpath("__init__.py").exists() for path in SOURCES)


SIMULATOR_PARTS = ("engines", "agents", "graph", "governance", "export")  # each may import those before it


def find_simulator_violations(path: str, source: str) -> Iterator[str]:
    """Imports of a later part by an earlier one; modules at the root, such as the records, come first."""

    def place(parts: Sequence[str]) -> int:
        return SIMULATOR_PARTS.index(parts[0]) if parts[0] in SIMULATOR_PARTS else -1

    own = place(Path(path).parts[1:2])
    for name in sorted(list_imports(source)):
        top, *parts = name.split(".")
        if top == "simulator" and parts and place(parts) > own:
            yield f"{path} imports {name}"


def test_parts_of_the_simulator_import_in_one_direction() -> None:
    found = [
        violation
        for path in SOURCES
        if path.startswith("simulator/")
        for violation in find_simulator_violations(path, (ROOT / path).read_text())
    ]
    assert found == []
    assert list(find_simulator_violations("simulator/records.py", "import simulator.engines.base")) != []
    assert (
        list(find_simulator_violations("simulator/graph/x.py", "import simulator.governance.governed_graph"))
        != []
    )


def test_data_files_are_part_of_the_package() -> None:
    """An installed wheel holds what the source tree holds beside code."""
    patterns = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["package-data"]
    places = [path for layer in LAYERS for path in (ROOT / layer).rglob("*") if path.is_file()]
    data = [path for path in places if path.suffix not in (".py", ".pyc")]
    assert len(data) > 6
    for path in data:
        owners = [(ROOT.joinpath(*package.split(".")), found) for package, found in patterns.items()]
        assert path.name == "py.typed" or any(
            path.match(str(folder / pattern)) for folder, found in owners for pattern in found
        ), f"{path.relative_to(ROOT)} is in no list of package-data"
