"""The wheel by itself: what is in it, and the README's example outside a checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process]
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree: a build folder that lies about adds files that are gone."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in tracked.stdout.splitlines():
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(folder / "tree")], check=True, timeout=LIMIT_S)
    (built,) = folder.glob("emads-*.whl")
    return built


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {pattern.removesuffix("*") for pattern in project["packages"]["find"]["include"]}
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == packages
    tracked = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert {name for name in names if ".dist-info/" not in name} == set(tracked.stdout.splitlines())
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_readme_s_example_and_the_version_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are this environment's, by a path that brings no editable install along."""
    venv.create(tmp_path / "clean", with_pip=True)
    python = str(tmp_path / "clean/bin/python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, env=environment, check=True)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    example = re.search(r"```python\n(import emads\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    told = run(python, "-c", f"{example[1]}\nprint(emads.__file__)")
    assert told.splitlines()[-1] == str(site / "emads/__init__.py")
    assert "CTO reports" in told
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(tmp_path / "clean/bin/emads", "--version") == f"emads {version}\n"
    run(tmp_path / "clean/bin/emads", "simulate", "--team", "scripted", "--index", "7", "--html", "out")
    assert list((tmp_path / "out").glob("*.html"))
