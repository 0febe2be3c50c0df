"""Builds the environments of other libraries, runs their validators there and prints a table of results.

    python tests/interop/run_validators.py

An environment holds what .venv lacks or has in another version (requirements-NAME.txt) and finds the rest
there. All are built at once, and two run their tests at a time. Exit status: 0 where every test passed, 1
where one failed, was skipped, or an environment could not be installed.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import venv
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = ROOT / ".venv-interop"
UV = "uv==0.13.9"
NEMO_GYM = "nemo-gym==0.7.0"
NEMO_GYM_PYTHON = "3.13.14"  # that it asks for; the part of it that checks sessions runs on 3.11, too
OURS = "ours"  # tests that .venv itself can run
RUNS = {  # environment -> tests that run there, the longest first
    "verifiers": ("tests/interop/test_verifiers.py", "tests/end_to_end/test_inspect_tasks.py"),
    "tracking": (
        "tests/training/runs/test_tracking.py::test_every_metric_of_every_stage_is_in_the_tracker",
        "tests/simulator/graph/test_langgraph_json.py::test_langgraph_dev_serves_all_graphs_and_plays_the_scripted_case",
        "tests/evaluation/scoring/test_suites.py",
    ),
    "ranks": (
        "tests/training/stages/test_role_on_ranks.py::test_zero_2_through_accelerate_trains_as_one_process_does",
        "tests/training/stages/test_ray_hosts.py::test_hosts_on_two_ray_nodes_give_the_weights_of_no_ray",
    ),
    "openenv": ("tests/interop/test_openenv.py", "tests/interop/test_nemo_gym.py"),
    OURS: (
        "tests/serving/environments/test_gymnasium_env.py",
        "tests/simulator/export/test_pettingzoo_env.py",
        "tests/training/data/test_interop.py::test_an_environment_has_the_roles_tools",
    ),
}
PATHS = ("", "environments/emads_roles", "environments/emads_team")
NAMED = {  # tests that record no row: part of the name -> row, {package} for its version
    "test_gymnasium_env": "Gymnasium | {gymnasium} | check_env, same rewards",
    "test_pettingzoo_env": "PettingZoo | {pettingzoo} | parallel_api_test, parallel_seed_test",
    "test_interop": "TRL | {trl} | environment_factory, reward by path",
    "test_inspect_tasks": "Inspect | {inspect-ai} | inspect eval with mockllm",
    "[tensorboard]": "TensorBoard | {tensorboard} | metrics of SFT, GRPO and joint, read back",
    "[mlflow]": "MLflow | {mlflow} | metrics of SFT, GRPO and joint, read back",
    "[wandb]": "W&B | {wandb} | metrics of SFT, GRPO and joint, read back (offline)",
    "[trackio]": "Trackio | {trackio} | metrics of SFT, GRPO and joint, read back",
    "test_langgraph_json": "LangGraph | {langgraph-api} | langgraph dev plays a scripted case",
    "test_zero_2": "DeepSpeed | {deepspeed} | a step of SFT by ZeRO-2 on two processes",
    "test_ray_hosts": "Ray | {ray} | hosts on two nodes give the weights of no Ray",
    "test_suites": "reasoning-gym | {reasoning-gym} | its answers get 1, a run answers its questions",
}
_testing = threading.Semaphore(2)


def find_python(name: str) -> Path:
    """Return the interpreter of an environment."""
    return (ROOT / ".venv" if name == OURS else HOME / name) / "bin" / "python"


def build(name: str) -> str:
    """Install an environment unless it stands; returns the installer's last words where it fails."""
    wanted, stamp = HERE / f"requirements-{name}.txt", HOME / name / ".installed"
    if name == OURS or (stamp.exists() and stamp.read_text() == wanted.read_text()):
        return ""
    shutil.rmtree(HOME / name, ignore_errors=True)
    venv.create(HOME / name, symlinks=True)
    install = [HOME / "uv/bin/uv", "pip", "install", "--quiet", "--no-deps", "--python", find_python(name)]
    commands: list[list[object]] = [[*install, "--requirement", wanted]]
    if name == "openenv":
        commands.append([*install, "--python-version", NEMO_GYM_PYTHON, NEMO_GYM])
    for command in commands:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            return done.stderr[-2000:]
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (Path(_ask(find_python(name), where)) / "ours.pth").write_text(f"{_ask(find_python(OURS), where)}\n")
    stamp.write_text(wanted.read_text())
    return ""


def run(name: str) -> list[tuple[str, str]]:
    """Build an environment and run its tests: rows as "standard | version | checked", each with a state."""
    start = time.monotonic()
    said = build(name)
    built = time.monotonic()
    if said:
        print(f"{name} cannot be installed:\n{said}", flush=True)
        return [(f"{name} | - | -", "not installed")]
    report = HOME / f"{name}.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    with _testing:
        began = time.monotonic()
        done = subprocess.run(
            [str(find_python(name)), "-m", "pytest", *options, *RUNS[name]],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": ":".join(str(ROOT / one) for one in PATHS),
                "PATH": f"{find_python(name).parent}:{os.environ['PATH']}",
                "OMP_NUM_THREADS": "1",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of .venv meet other versions here
                "PYTEST_ADDOPTS": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    print(done.stdout if done.returncode else done.stdout.splitlines()[-1])
    print(f"{name}: installed in {built - start:.0f} s, tests {time.monotonic() - began:.0f} s\n", flush=True)
    return read_rows(name, report) if report.exists() else [(f"{name} | - | tests did not start", "FAILED")]


def read_rows(name: str, report: Path) -> list[tuple[str, str]]:
    """Return each test's row and state."""
    rows = []
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}.{case.get('name')}"
        state = "ok" if case.find("skipped") is None else "skipped"
        state = "FAILED" if case.find("failure") is not None or case.find("error") is not None else state
        recorded = [one.get("value", "") for one in case.iter("property") if one.get("name") == "row"]
        known = [row for part, row in NAMED.items() if part in test]
        label = (recorded or known or [f"{name} | - | {test}"])[0]
        for package in re.findall(r"\{(.+?)\}", label):
            version = _ask(
                find_python(name), f"import importlib.metadata as m; print(m.version('{package}'))"
            )
            label = label.replace(f"{{{package}}}", version)
        rows.append((label, state))
    return rows


def _ask(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip() or "-"


def main() -> int:
    """Print the table; returns the exit status."""
    start = time.monotonic()
    if not (HOME / "uv" / UV).exists():
        pip = [str(find_python(OURS)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--upgrade", "--target", str(HOME / "uv"), UV], check=True)
        (HOME / "uv" / UV).touch()
    with ThreadPoolExecutor(len(RUNS)) as pool:
        rows = [row for found in pool.map(run, RUNS) for row in found]
    results: dict[str, list[str]] = {}
    for label, state in rows:
        results.setdefault(label, []).append(state)
    print("| standard | version | checked | result |\n|---|---|---|---|")
    for label, states in results.items():
        bad = sorted({state for state in states if state != "ok"})
        print(f"| {label} | {', '.join(bad) if bad else f'ok ({len(states)})'} |")
    print(f"\n{len(rows)} tests, {time.monotonic() - start:.0f} s")
    return int(any(state != "ok" for _, state in rows))


if __name__ == "__main__":
    sys.exit(main())
