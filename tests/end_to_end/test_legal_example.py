"""examples/legal: a role from outside, in few lines, shows in graph, prompts, reports and rewards."""

import subprocess
import sys
from pathlib import Path

import pytest
from legal_role import ROLE
from legal_seat import seat_legal

from scenarios.company.optimum import recheck_optimum
from scenarios.team import generate
from scenarios.team.offers import is_needed

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "legal"
MAX_LINES = 40


def test_it_takes_few_lines() -> None:
    files = [EXAMPLE / "legal_role.py", EXAMPLE / "legal_seat.py"]
    assert sum(bool(line.strip()) for file in files for line in file.read_text().splitlines()) <= MAX_LINES


def test_the_package_knows_nothing_of_it() -> None:
    for layer in ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads"):
        for path in (ROOT / layer).rglob("*.py"):
            assert "legal_role" not in path.read_text(), path


@pytest.mark.parametrize("index", range(20))
def test_its_seat_follows_from_the_case(index: int) -> None:
    case = generate("train", 0, index, 1 + index % 3)
    seated = seat_legal(case)
    assert seat_legal(case) == seated
    assert list(seated.seats) == [*case.seats, "legal"]
    assert seated.key == case.key
    needed = [option for option in case.options if is_needed(seated, "legal", option)]
    assert needed == list(seated.seats["legal"].facts["needs"])
    if case.optimum is not None and seated.optimum is not None:
        before = case.optimum.worth
        assert seated.optimum.worth >= before or case.optimum.plan.option in needed
        assert recheck_optimum(seated.case) == seated.optimum.worth


def test_the_program_shows_it_everywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE / "play.py", tmp_path],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if line[:1].islower())
    assert lines["graph"].split() == ["intake", "->", "legal,", "legal", "->", "reconcile"]
    assert f"<|system|>{ROLE.title}. You are Legal at a table" in lines["prompt"]
    assert "escrow account (cost" in done.stdout
    assert '"escrow account"' in lines["report"]
    assert '"legal"' in lines["decision"]  # its offer is funded
    assert "5 of 5 votes right" in lines["reward"]
    (page,) = tmp_path.iterdir()
    assert page.read_text().count("Legal") >= 5
