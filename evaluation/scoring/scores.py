"""Evaluation records, stored as JSON lines: what a role or the team scored at one stage on sealed scenarios.

Every per-scenario tuple is in the order of the scenarios, so that stages can be compared pairwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from roles.errors import UserError
from simulator.export.atomic_files import write_atomic

BASELINE_STAGES = ("random", "constant", "heuristic", "oracle")
FEEDBACK_STAGES = ("corrections", "dpo", "kto", "ppo")  # that learn from labels
# sft_more, sft_own: controls of GRPO
TRAINED_STAGES = ("untrained", "sft", "sft_more", "sft_own", "grpo", *FEEDBACK_STAGES, "marl")
TEAM_BASELINES = (
    "random", "greedy", "majority", "single", "oracle_common", "oracle_best", "oracle_searched", "reachable",
    "oracle",
)  # fmt: skip

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleScores:
    """One role at one stage; the greedy fields are empty where there is no greedy twin.

    Example: RoleScores(role="cto", stage="sft", sampled=(1.0, 0.3), greedy=(1.0, 1.0),
                        sampled_exact=(True, False), greedy_exact=(True, True), sampled_feasible=(True, True),
                        greedy_feasible=(True, True), num_tool_failures=1, mean_tokens=41.5)
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    role: str
    stage: str  # one of BASELINE_STAGES or TRAINED_STAGES
    sampled: tuple[float, ...]  # verified reward at evaluation.temperature
    greedy: tuple[float, ...]  # verified reward of the greedy twin
    sampled_exact: tuple[bool, ...]
    greedy_exact: tuple[bool, ...]
    sampled_feasible: tuple[bool, ...]
    greedy_feasible: tuple[bool, ...]
    num_tool_failures: int  # refused calls over the sampled trajectories
    mean_tokens: float  # sampled per trajectory
    kind: Literal["role"] = "role"

    def __post_init__(self) -> None:
        _check_lengths(self, ("sampled", "sampled_exact", "sampled_feasible"))
        _check_lengths(self, ("greedy", "greedy_exact", "greedy_feasible"))
        _check_twin(self.sampled, self.greedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamScores:
    """The team at one stage; the parts are those of the sampled episodes.

    Example: TeamScores(stage="marl", sampled=(0.95, 0.0), greedy=(1.0, 0.4), value=(1.0, 0.0),
                        consensus=(0.75, 0.5), unresolved=(0.0, 0.0), escalation=(0.0, 0.0),
                        agreement=(1.0, 0.5)).agreement_when_wrong == 0.5
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    stage: str  # one of TEAM_BASELINES or TRAINED_STAGES
    sampled: tuple[float, ...]  # team reward R at evaluation.temperature
    greedy: tuple[float, ...]  # R of the greedy twin; empty where there is none
    value: tuple[float, ...]  # V, in [0, 1]
    consensus: tuple[float, ...]  # C, justified agreement, in [0, 1]
    unresolved: tuple[float, ...]  # U, share of hard conflicts left unresolved
    escalation: tuple[float, ...]  # H, 1 for a needless or missed escalation
    agreement: tuple[float, ...]  # share of specialists who accept, right or wrong; empty where nobody votes
    repeated_value: tuple[tuple[float, ...], ...] = ()  # V of further plays of the first cases, play by play
    best_option: tuple[bool, ...] = ()  # whether the best plan's option was decided; empty: not known
    hidden: tuple[bool, ...] = ()  # hidden profiles (scenarios.company.coordination); empty: not known
    kind: Literal["team"] = "team"

    def __post_init__(self) -> None:
        _check_lengths(self, ("sampled", "value", "consensus", "unresolved", "escalation"))
        _check_twin(self.sampled, self.greedy)
        for name in ("agreement", "best_option", "hidden"):
            if getattr(self, name):
                _check_lengths(self, ("sampled", name))

    @property
    def agreement_when_wrong(self) -> float | None:
        """Mean agreement over episodes whose decision is worth nothing (V = 0); None without any."""
        shares = [share for share, value in zip(self.agreement, self.value, strict=False) if value == 0]
        return sum(shares) / len(shares) if shares else None


Scores = RoleScores | TeamScores
_ADAPTER: TypeAdapter[Scores] = TypeAdapter(Annotated[Scores, Field(discriminator="kind")])


def scores_as_line(scores: Scores) -> str:
    """One JSON line, without its newline."""
    return _ADAPTER.dump_json(scores).decode()


def parse_scores(line: str) -> Scores:
    """Return the record of one JSON line.

    Raises:
        ValueError: not a strict record (unknown key, wrong type, unequal lengths, non-finite number).
    """
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        raise ValueError(f"{where}: {first['msg']}") from None


def write_scores(path: Path, scores: Iterable[Scores]) -> None:
    """Write records as JSON lines, all or nothing."""
    write_atomic(path, "".join(scores_as_line(record) + "\n" for record in scores))


def read_scores(path: Path) -> list[Scores]:
    """Return all records of a file written by write_scores.

    Raises:
        UserError: missing file, or a line that is not a record; names file and line.
    """
    if not path.is_file():
        raise UserError(f"no evaluation scores at {path}; evaluate the run first")
    records: list[Scores] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(parse_scores(line.decode()))
        except ValueError as error:
            raise UserError(f"{path}:{number} is no evaluation record ({error}); evaluate again") from None
    return records


def _check_lengths(scores: Scores, names: tuple[str, ...]) -> None:
    lengths = {name: len(getattr(scores, name)) for name in names}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{scores.stage}: scores of unequal lengths {lengths}")


def _check_twin(sampled: tuple[float, ...], greedy: tuple[float, ...]) -> None:
    if not sampled:
        raise ValueError("scores need at least one scenario")
    if greedy and len(greedy) != len(sampled):
        raise ValueError(f"greedy twin of {len(greedy)} scenarios beside {len(sampled)} sampled ones")
