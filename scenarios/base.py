"""Records and the family contract that every generator, oracle and verifier obeys."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Split = Literal["train", "validation", "test", "test-new-sectors"]
SPLITS: tuple[str, ...] = get_args(Split)
NEW_SECTORS: Split = "test-new-sectors"  # cases in sectors and wordings that no other split has
SEALED: tuple[Split, ...] = ("test", NEW_SECTORS)  # splits that nothing learns from
Style = Literal["full", "short"]  # of texts: for any chat model, or for models trained on them
MIN_DIFFICULTY, MAX_DIFFICULTY = 1, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One generated case of one family, from the seat of one role.

    Example: FAMILIES["cto"].generate("train", seed=0, index=7, difficulty=2).key == "cto/train/0/7/2"
    """

    family: str
    split: Split
    seed: int
    index: int
    difficulty: int  # 1 (easiest) to 10
    role: str  # who answers
    brief: str  # what the role reads; never contains the answer
    facts: Mapping[str, Any]  # JSON values that the role's tools may use
    truth: Mapping[str, Any]  # hidden: the optimum and what scores an answer; never leaves the verifier
    optimal_tool_calls: int  # calls that the longest demonstration of the expert makes; more are unnecessary

    @property
    def key(self) -> str:
        return f"{self.family}/{self.split}/{self.seed}/{self.index}/{self.difficulty}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Score of one answer by a verifier.

    Example: Verdict(reward=1.0, parts={"choice": 1.0, "figures": 1.0}, exact=True, feasible=True,
                     explanation="optimal: B at 42 k$", failure=None)
    """

    reward: float  # in [0, 1]; 1 only for an exactly optimal, fully right answer
    parts: Mapping[str, float]  # named parts, each in [0, 1]
    exact: bool  # the choice is the exact optimum
    feasible: bool  # every hard constraint holds
    explanation: str
    failure: str | None = (
        None  # how it failed, None where it is exact; e.g. "not_json", "infeasible", "suboptimal"
    )


def rejected(failure: str, explanation: str) -> Verdict:
    """The verdict of a policy fault: reward 0."""
    return Verdict(
        reward=0.0, parts={}, exact=False, feasible=False, explanation=explanation, failure=failure
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as the model writes it: name and JSON arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One assistant turn of a demonstration: text, then a tool call or (last step) nothing more."""

    text: str
    call: ToolCall | None = None
    is_slip: bool = False  # a call that the tool refuses: shown, not learnt from


class ToolError(Exception):
    """A call that the tool refuses; the message goes back to the model as the observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Scenarios of one kind: generator, exact oracle, strict verifier, tools, demonstrations, baselines.

    Example: FAMILIES["cost"].verify(scenario, '{"part": ["premium rope"], "cost": 6, "worth": 9}').reward
    """

    name: str
    role: str
    generate: Callable[..., Scenario]  # generate(split, seed, index, difficulty), pure
    verify: Callable[[Scenario, str], Verdict]  # total: never raises on model text
    solve: Callable[[Scenario], dict[str, Any]]  # the oracle's answer object
    certify: Callable[
        [Scenario], tuple[float, float]
    ]  # (oracle value, value by a second, independent method)
    call_tool: Callable[[Scenario, ToolCall], str]  # observation; raises ToolError
    demonstrate: Callable[
        [Scenario, random.Random], tuple[Step, ...]
    ]  # expert play, styles drawn from the rng
    baselines: Mapping[str, Callable[[Scenario, random.Random], str]] = field(default_factory=dict)
    # baselines: "random", "constant" (best constant answer), "greedy" -> answer text; where greedy overlooks
    # a hard limit also "honest", which keeps them all: what no reward hack may beat
    max_calls: int = 40  # tool calls per episode; more are refused (scenarios.tool_executor)
    infeasible_reward: float = 0.0  # most that an answer that breaks a hard limit earns, for the limits kept
    find_sector: Callable[..., str] | None = None
    # find_sector(split, seed, index, difficulty): the sector of a case without making it; None: it has none


def scenario_rng(family: str, split: str, seed: int, index: int, difficulty: int) -> random.Random:
    """The generator's only source of chance: a string key, so that no two scenarios share a stream.

    The difficulty is in it: else the answer of one difficulty would be right, or nearly, at the next.
    """
    return random.Random(f"{family}/{split}/{seed}/{index}/{difficulty}")


def check_coordinates(split: str, seed: int, index: int, difficulty: int) -> None:
    """Refuse coordinates outside their range.

    Raises:
        ValueError: names the value and the range.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r} (known: {', '.join(SPLITS)})")
    if seed < 0 or index < 0:
        raise ValueError(f"seed and index must be >= 0, got seed {seed}, index {index}")
    if not MIN_DIFFICULTY <= difficulty <= MAX_DIFFICULTY:
        raise ValueError(f"difficulty must be {MIN_DIFFICULTY} to {MAX_DIFFICULTY}, got {difficulty}")
