"""One play of one scenario, as every adapter to another trainer drives it.

Messages and tools come out, tool calls and one answer go in, and the reward comes out with its parts.
Adapters (HTTP, OpenEnv, Gymnasium, TRL, verifiers) translate this to their standard and hold no rule of a
family. Truth stays behind the verifier, and the test split is not played.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from roles.base import Role, Tool
from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios import environment
from scenarios.base import Family, Scenario, ToolCall, Verdict
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from serving.environments import seat_tasks
from simulator.export.episode_files import write_lines

MOST = 2**63 - 1  # of a seed or an index


class ScenarioName(BaseModel):
    """Coordinates of a row's scenario.

    Example: ScenarioName(family="cto", split="train", seed=0, index=7, difficulty=2)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    family: str
    split: Literal["train", "validation"]
    seed: int = Field(ge=0, le=MOST)
    index: int = Field(ge=0, le=MOST)
    difficulty: int = Field(ge=1, le=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Scenarios of one kind, and who answers them.

    Example: KINDS["cto"].family.name == "cto"
    """

    family: Family
    find_role: Callable[[Scenario], Role]


def _kind(family: Family, role: Role) -> Kind:
    return Kind(family=family, find_role=lambda scenario: role)


KINDS: dict[str, Kind] = {
    **{name: _kind(family, ROLES[family.role]) for name, family in FAMILIES.items()},
    **{
        f"{seat_tasks.PREFIX}{seat}": Kind(
            family=seat_tasks.make_seat_family(seat), find_role=seat_tasks.find_role
        )
        for seat in seat_tasks.SEATS
    },
    **{name: _kind(family, TASK_ROLES[name]) for name, family in TASK_FAMILIES.items()},
}


def open_kinds(*folders: Path) -> dict[str, Kind]:
    """All kinds: role families, seats of the team, generated tasks, and the imported folders by their names.

    Raises:
        UserError: a damaged folder, or two kinds of one name.
    """
    from scenarios.tasks.imported import ROLE, make_family
    from training.data.tasks import read_tasks

    kinds = dict(KINDS)
    for folder in folders:
        tasks = read_tasks(folder)
        if tasks.name in kinds:
            raise UserError(
                f"{folder}: there is a family {tasks.name!r} already; import it under another name"
            )
        kinds[tasks.name] = _kind(make_family(tasks), ROLE)
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOutcome:
    """The reward of an answer, its parts, and the verdict behind it."""

    reward: float  # the role reward, at least 0; its parts add up to it before that limit
    parts: Mapping[str, float]
    verdict: Verdict

    def as_fields(self) -> dict[str, Any]:
        """Flat JSON values: reward, reward_PART, score (the verifier's, 0 to 1), exact, failure."""
        return {
            "reward": self.reward,
            "score": self.verdict.reward,
            "exact": self.verdict.exact,
            "failure": self.verdict.failure,
            **{f"reward_{part}": value for part, value in self.parts.items()},
        }


class Play:
    """One play of one scenario; its first answer counts, whatever is written later.

    Example: play = start_play(ScenarioName(family="cto", split="train", seed=0, index=7, difficulty=2))
    """

    def __init__(self, kind: Kind, scenario: Scenario) -> None:
        self.scenario, self.role = scenario, kind.find_role(scenario)
        self.outcome: EnvironmentOutcome | None = None  # until the play is over
        self.tools: tuple[Tool, ...] = self.role.tools
        self._family = kind.family
        self._state = environment.start(scenario)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The first messages: the role's system text and the brief."""
        return [
            {"role": "system", "content": self.role.mandate},
            {"role": "user", "content": self.scenario.brief},
        ]

    @property
    def is_done(self) -> bool:
        return self._state.is_done

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the tool's observation; a call that it refuses is an observation, too."""
        if self.is_done:
            return "error: the episode is over"
        return self._advance(ToolCall(name=name, arguments=arguments)).observation

    def answer(self, text: str) -> EnvironmentOutcome:
        """The outcome of this answer, or of the first one; a play out of steps was worth 0."""
        if self.outcome is None:
            self._advance(text)
        assert self.outcome is not None
        return self.outcome

    def _advance(self, action: environment.Action) -> environment.Transition:
        moved = environment.step(self._family, self._state, action)
        self._state = moved.state
        if moved.state.verdict is not None:
            parts = dict(moved.parts)
            reward = parts.pop("total")
            self.outcome = EnvironmentOutcome(reward=reward, parts=parts, verdict=moved.state.verdict)
        return moved


def start_play(name: ScenarioName, kinds: Mapping[str, Kind] = KINDS) -> Play:
    """Open the play of the named scenario.

    Raises:
        UserError: unknown family, or a scenario that it does not have.
    """
    if name.family not in kinds:
        raise unknown("family", name.family, list(kinds))
    kind = kinds[name.family]
    try:
        scenario = kind.family.generate(name.split, name.seed, name.index, name.difficulty)
    except ValueError as error:  # imported tasks are finite
        raise UserError(str(error)) from None
    return Play(kind, scenario)


def make_row(play: Play) -> dict[str, Any]:
    """One row of a data set for NeMo Gym and verifiers: the request to a Responses API, and the scenario.

    Example: make_row(start_play(name))["scenario"]["family"] == "cto"
    """
    scenario = play.scenario
    system, user = play.messages
    return {
        "responses_create_params": {
            "input": [{**system, "role": "developer"}, user],
            "tools": [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in play.tools
            ],
            "parallel_tool_calls": False,
        },
        "scenario": {name: getattr(scenario, name) for name in ScenarioName.model_fields},
    }


def write_rows(
    path: Path, family: str, *, count: int, difficulties: Sequence[int], kinds: Mapping[str, Kind] = KINDS
) -> None:
    """Write a JSONL file of the family's first `count` training scenarios, difficulties in turn.

    Raises:
        UserError: a scenario that the family does not have.
    """
    names = (
        ScenarioName(
            family=family,
            split="train",
            seed=0,
            index=index,
            difficulty=difficulties[index % len(difficulties)],
        )
        for index in range(count)
    )
    write_lines(path, (json.dumps(make_row(start_play(name, kinds))) for name in names))
