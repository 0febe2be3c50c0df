"""A teacher behind an endpoint plays lessons or writes a folder, with little patience."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from teacher_server import Oracle, TeacherServer, play_oracle

from scenarios.base import Scenario, Step
from scenarios.team import TeamScenario
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import EndpointSettings
from training.data.folders.rows import SOLO_FAMILIES
from training.data.teacher.folder import TeachingReport, teach_folder
from training.data.teacher.lessons import list_lessons
from training.data.teacher.teacher import Halt, TaughtLesson, TeachingRules, write_demonstrations

RULES = TeachingRules()
COMMAND = [sys.executable, "-m", "emads.cli", "generate", "--family", "cto", "--difficulties", "1"]
QUICK: dict[str, Any] = {"timeout_s": 20.0, "backoff_s": 0.01, "max_wait_s": 0.5, "max_retries": 3}


def make_settings(server: TeacherServer, **changes: Any) -> EndpointSettings:
    return EndpointSettings(url=server.url, **({"model": "tiny"} | QUICK | changes))


def teach(
    out: Path,
    server: TeacherServer,
    count: int = 6,
    *,
    families: Sequence[str] = ("cto",),
    rules: TeachingRules = RULES,
    **changes: Any,
) -> TeachingReport:
    endpoint = make_settings(server, **changes)
    return teach_folder(families, count, out, endpoint=endpoint, rules=rules, difficulties=(1,))


def play_all(
    server: TeacherServer,
    scenarios: Sequence[Scenario | TeamScenario],
    *,
    rules: TeachingRules = RULES,
    families: Any = SOLO_FAMILIES,
    **changes: Any,
) -> list[TaughtLesson]:
    async def run() -> list[TaughtLesson]:
        async with ChatClient(make_settings(server, **changes)) as client:
            return await write_demonstrations(
                [lesson for one in scenarios for lesson in list_lessons(one, families)],
                client,
                author="teacher:tiny",
                rules=rules,
                halt=Halt(rules.max_failures),
            )

    return asyncio.run(run())


def reasons(outcomes: Sequence[TaughtLesson]) -> list[str | None]:
    return [outcome.rejection.reason if outcome.rejection else None for outcome in outcomes]


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def generate(server: TeacherServer, out: Path, count: int = 12) -> list[str]:
    teacher = ["--teacher", server.url, "--model", "tiny", "--teacher-set", "concurrency=3"]
    return [*COMMAND, "--count", str(count), "--out", str(out), *teacher]


class Pupil(Oracle):
    """The oracle but for scenarios of odd index, where `spoil` changes its play."""

    def __init__(self, scenarios: Sequence[Scenario], spoil: Any) -> None:
        super().__init__(scenarios)
        self._spoil = spoil

    def steps(self, scenario: Scenario) -> Sequence[Step]:
        steps = play_oracle(scenario)
        spoilt: Sequence[Step] = self._spoil(steps) if scenario.index % 2 else steps
        return spoilt


def give_wrong_answer(steps: Sequence[Step]) -> list[Step]:
    """A play whose last turn names a part that does not exist."""
    return [*steps[:-1], Step(text='{"part": ["no such"], "cost": 1, "worth": 1}')]
