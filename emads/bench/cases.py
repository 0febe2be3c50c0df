"""The cases of the bench, in their order. Their texts are pinned: a changed generator needs a new version.

600 cases: 20 of each role family and 100 of the table in each of three bands of difficulty. They are played
in rounds over all cells, so that what was played of a set that stopped early is balanced.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from scenarios.team import PlanGame, TeamScenario
from scenarios.team import generate as generate_team

Band = Literal["easy", "middle", "hard"]

SET_VERSION = 7
SEED = 2026  # of the test split
TABLE = "table"
BANDS: Mapping[Band, tuple[int, ...]] = {"easy": (1, 2, 3), "middle": (4, 5, 6), "hard": (7, 8, 9, 10)}
ROLE_FAMILIES = ("cto", "coo", "risk", "cost", "reconcile")
CASES_PER_CELL: Mapping[str, int] = {**dict.fromkeys(ROLE_FAMILIES, 20), TABLE: 100}
PINS = "set.json"
_BAND_START: Mapping[Band, int] = {"easy": 0, "middle": 1_000, "hard": 2_000}  # first index of a band


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Cases of one kind and band.

    Example: Cell(kind="cto", band="easy").name == "cto/easy"
    """

    kind: str  # a role family, or TABLE
    band: Band

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.band}"

    @property
    def num_cases(self) -> int:
        return CASES_PER_CELL[self.kind]


BenchCase = Scenario | TeamScenario


def find_cell(case: BenchCase) -> Cell:
    """Return the cell of a case, of the set or not."""
    return Cell(
        kind=case.family if isinstance(case, Scenario) else TABLE,
        band=next(band for band, levels in BANDS.items() if case.difficulty in levels),
    )


CELLS = tuple(Cell(kind=kind, band=band) for kind in CASES_PER_CELL for band in BANDS)


@cache
def draw_cell(cell: Cell) -> tuple[BenchCase, ...]:
    """Return the cell's cases; the difficulties of its band take turns."""
    levels = BANDS[cell.band]
    draw = generate_team if cell.kind == TABLE else FAMILIES[cell.kind].generate
    return tuple(
        draw("test", SEED, _BAND_START[cell.band] + number, levels[number % len(levels)])
        for number in range(cell.num_cases)
    )


def list_cases(limit: int | None = None) -> list[BenchCase]:
    """Return all cases in the order of play; with `limit` at most so many of each cell.

    Every round takes 1 case of each role cell and 5 of each table cell.
    """
    queues = [(list(draw_cell(cell))[:limit], cell.num_cases // 20) for cell in CELLS]
    return [
        case
        for start in range(20)
        for cases, step in queues
        for case in cases[start * step : (start + 1) * step]
    ]


def compute_digest(cell: Cell) -> str:
    """Return the SHA-256 of all that a model reads in the cell's cases, and of their right answers."""
    digest = hashlib.sha256()
    for case in draw_cell(cell):
        for text in _list_texts(case):
            digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def check_pins(cells: Sequence[Cell] = CELLS) -> None:
    """Refuse a set whose cases are not the pinned ones.

    Raises:
        UserError: names the first changed cell and what to do.
    """
    pinned = read_pins()["digests"]
    for cell in cells:
        if pinned.get(cell.name) != compute_digest(cell):
            raise UserError(
                f"the cases of {cell.name} are not those of bench set {SET_VERSION}: the generator changed;"
                " use the release that a card names, or raise SET_VERSION and run"
                " `python -m emads.bench.cases`"
            )


@cache
def read_pins() -> dict[str, Any]:
    """Return the version of the set and the digests of its cells, as they were pinned."""
    pins: dict[str, Any] = json.loads(files("emads.bench").joinpath(PINS).read_text())
    return pins


def _list_texts(scenario: BenchCase) -> Iterator[str]:
    if isinstance(scenario, Scenario):
        roles, briefs = [ROLES[scenario.role]], [scenario.brief]
        answer = json.dumps(FAMILIES[scenario.family].solve(scenario), sort_keys=True)
    else:
        game, best = PlanGame(scenario), scenario.optimum
        roles = [game.prompt_role(seat) for seat in (*scenario.seats, RECONCILER)]
        briefs = [game.write_report_brief(seat) for seat in scenario.seats]
        answer = "none" if best is None else f"{best.plan.option} {best.worth}"
    for role in roles:
        yield role.mandate
        yield json.dumps([tool.as_chat_tool() for tool in role.tools])
    yield from briefs
    yield answer


def write_pins() -> None:
    """Pin the set's present texts beside this module: for a new SET_VERSION only."""
    pins = {"set_version": SET_VERSION, "digests": {cell.name: compute_digest(cell) for cell in CELLS}}
    Path(__file__).with_name(PINS).write_text(json.dumps(pins, indent=1) + "\n")


if __name__ == "__main__":
    write_pins()
