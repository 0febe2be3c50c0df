"""The layers of the project: which way imports go, and which library may be used where."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LAYERS = (
    "roles",
    "scenarios",
    "simulator",
    "evaluation",
    "training",
    "emads",
)  # each may import those before it
QUARANTINE = {
    "langgraph": ("simulator/graph/*", "simulator/governance/*"),
    "torch": ("simulator/engines/*", "training/*"),
    "transformers": ("simulator/engines/*", "training/*"),
    "peft": ("simulator/engines/*", "training/*"),
    "trl": ("training/roles/sft.py", "training/roles/grpo.py"),
    "vllm": ("simulator/engines/vllm/*",),
    "fastapi": ("evaluation/environments/http_env.py",),
    "pettingzoo": ("simulator/export/pettingzoo_env.py",),
    "gymnasium": ("simulator/export/pettingzoo_env.py",),
    "opentelemetry": ("simulator/export/telemetry.py",),
    "httpx": ("simulator/engines/openai/*", "simulator/engines/vllm/server_client.py"),
}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "handler"}
SOURCES = sorted(
    path.relative_to(ROOT).as_posix() for layer in LAYERS for path in (ROOT / layer).rglob("*.py")
)


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
        if top in QUARANTINE and not any(fnmatch(path, pattern) for pattern in QUARANTINE[top]):
            yield f"{path} imports {name}, which belongs to {', '.join(QUARANTINE[top])}"
    if FORBIDDEN_NAMES & set(Path(path).stem.split("_")):
        yield f"{path} has a name that says nothing"


@pytest.mark.parametrize("path", SOURCES)
def test_imports_go_one_way_and_libraries_stay_in_quarantine(path: str) -> None:
    assert list(find_violations(path, (ROOT / path).read_text())) == []


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("roles/cto.py", "from scenarios.base import Scenario", "roles stands below scenarios"),
        (
            "evaluation/report/page.py",
            "def f():\n    import training.runs.run_folder",
            "evaluation stands below training",
        ),
        ("scenarios/cto.py", "import torch", "belongs to simulator/engines/*"),
        ("simulator/team.py", "from langgraph.graph import StateGraph", "belongs to simulator/graph/*"),
        ("training/learner/learner.py", "import trl", "belongs to training/roles/sft.py"),
        (
            "training/learner/learner.py",
            "if True:\n    from vllm import LLM",
            "belongs to simulator/engines/vllm/*",
        ),
        (
            "training/x.py",
            "import importlib\nimportlib.import_module('vllm')",
            "belongs to simulator/engines/vllm/*",
        ),
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
        ("simulator/engines/vllm/engine.py", "from vllm import LLM"),
        ("evaluation/environments/http_env.py", "import fastapi"),
    ],
)
def test_the_check_lets_the_layers_work(path: str, source: str) -> None:
    assert list(find_violations(path, source)) == []


@pytest.mark.parametrize(("library", "num_homes"), [("vllm", 1), ("fastapi", 2)])
def test_these_libraries_have_few_homes(library: str, num_homes: int) -> None:
    users = [
        path
        for path in SOURCES
        if library in {n.split(".")[0] for n in list_imports((ROOT / path).read_text())}
    ]
    assert len(users) <= num_homes


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
