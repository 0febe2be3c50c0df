"""Builds the environments of other trainers, runs their validators there and prints a table of results.

    python tests/interop/run_validators.py

Each test under tests/interop names its row. Exit status: 0 where everything that installs is valid, 1 else.
An environment that cannot be installed is printed as such.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEMO_GYM = "nemo-gym==0.7.0"  # asks for Python 3.13.14; the part that checks sessions runs on 3.11, too
RUNS = {  # environment -> tests that run there
    ".venv": (
        "tests/serving/environments/test_gymnasium_env.py",
        "tests/simulator/export/test_pettingzoo_env.py",
        "tests/training/data/test_interop.py::test_an_environment_has_the_roles_tools",
    ),
    ".venv-interop": ("tests/interop/test_verifiers.py", "tests/end_to_end/test_inspect_tasks.py"),
    ".venv-interop-openenv": ("tests/interop/test_openenv.py", "tests/interop/test_nemo_gym.py"),
}
PATHS = ("", "environments/emads_roles", "environments/emads_team")
NAMED = {  # tests without a row of their own: part of the class name -> row
    "test_gymnasium_env": "Gymnasium | {gymnasium} | check_env, same rewards",
    "test_pettingzoo_env": "PettingZoo | {pettingzoo} | parallel_api_test, parallel_seed_test",
    "test_interop": "TRL | {trl} | environment_factory, reward by path",
    "test_inspect_tasks": "Inspect | {inspect-ai} | inspect eval with mockllm",
}


def build(name: str) -> bool:
    """Whether the environment stands; pip's last words are printed where it does not."""
    if name == ".venv":
        return True
    short = name.removeprefix(".venv-")
    python, constraints = ROOT / name / "bin" / "python", ROOT / f"constraints-{short}.txt"
    stamp = ROOT / name / ".installed"
    if stamp.exists() and stamp.read_text() == constraints.read_text():
        return True
    print(f"installing into {name} (a minute or two)", flush=True)
    install = [python.parent / "uv", "pip", "install", "--quiet", "--no-deps", "--python", python]
    commands: list[list[object]] = [
        [sys.executable, "-m", "venv", ROOT / name],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv==0.13.9"],
        [*install, "--requirement", constraints],
    ]
    if name.endswith("openenv"):
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        commands.append([*pip, "--no-deps", "--ignore-requires-python", NEMO_GYM])
    for command in commands:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            print(done.stderr[-2000:])
            return False
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = {one: _ask(one, where) for one in (python, ROOT / ".venv/bin/python")}
    # what the environment lacks (pytest, our own needs) it finds in .venv
    (Path(packages[python]) / "emads.pth").write_text(f"{packages[ROOT / '.venv/bin/python']}\n")
    stamp.write_text(constraints.read_text())
    return True


def run(name: str, tests: tuple[str, ...]) -> list[tuple[str, str]]:
    """Rows as "standard | version | validator", each with ok, FAILED or skipped."""
    python, report = ROOT / name / "bin" / "python", ROOT / name / "interop.xml"
    report.unlink(missing_ok=True)
    subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": ":".join(str(ROOT / one) for one in PATHS),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of .venv meet other versions here
            "PYTEST_ADDOPTS": "",
        },
    )
    if not report.exists():
        return [(f"{name} | - | tests did not start", "FAILED")]
    rows = []
    for case in ElementTree.parse(report).iter("testcase"):
        state = "FAILED" if case.find("failure") is not None or case.find("error") is not None else "ok"
        state = "skipped" if case.find("skipped") is not None else state
        named = [one.get("value", "") for one in case.iter("property") if one.get("name") == "row"]
        known = [row for part, row in NAMED.items() if part in case.get("classname", "")]
        label = (named or known or [f"{name} | - | {case.get('name')}"])[0]
        if "{" in label:
            package = label[label.index("{") + 1 : label.index("}")]
            version = _ask(python, f"import importlib.metadata as m; print(m.version('{package}'))")
            label = label.replace(f"{{{package}}}", version)
        rows.append((label, state))
    return rows


def _ask(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip() or "-"


def main() -> int:
    """Print the table; returns the exit status."""
    results: dict[str, list[str]] = {}
    for name, tests in RUNS.items():
        if build(name):
            for label, state in run(name, tests):
                results.setdefault(label, []).append(state)
        else:
            results[f"{name} | - | {', '.join(tests)}"] = ["not installed"]
    print("\n| standard | version | validator | result |\n|---|---|---|---|")
    for label, states in results.items():
        bad = [state for state in states if state != "ok"]
        print(f"| {label} | {f'ok ({len(states)})' if not bad else ', '.join(sorted(set(bad)))} |")
    return int(any(state in ("FAILED", "skipped") for states in results.values() for state in states))


if __name__ == "__main__":
    sys.exit(main())
