"""Outcomes of sealed plays, one JSON line each: a role's answer or a team's episode, by scenario.

Plays are made block by block, always the same scenarios together, and a block's lines are written and synced
at once. A killed evaluation goes on with the block that it lost and ends in the same numbers, bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from roles.base import FORMAT_FAILURES, AnswerError, parse_answer
from roles.errors import UserError
from roles.team import NO_OPTION, RECONCILER, Decision
from scenarios.company.coordination import is_hidden_profile
from scenarios.team import TeamScenario
from simulator.agents.solo import SoloEpisode
from simulator.export.atomic_files import write_atomic
from simulator.line_files import LineFile, read_lines
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamVerdict

BLOCK_SIZE = 250  # scenarios that are played together; part of the result's definition, see the module
Mode = Literal["sampled", "greedy"]
MODES: tuple[Mode, ...] = ("sampled", "greedy")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOutcome:
    """One role's play of one scenario of its own family.

    Example: RoleOutcome(key="cto/test/0/7/2", difficulty=2, sector="bank", reward=1.0,
                         exact=True, feasible=True, failure=None, parts={"graded": 1.0}, turns=4,
                         tool_calls=3, failed_calls=0, tokens=88, truncated=False, well_formed=True,
                         escalated=False, answer='{"option": ...')
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    key: str
    difficulty: int
    sector: str
    reward: float
    exact: bool
    feasible: bool
    failure: str | None
    parts: dict[str, float]
    turns: int  # completions: tool calls and the answer
    tool_calls: int
    failed_calls: int
    tokens: int  # sampled
    truncated: bool  # ended by a limit
    well_formed: bool  # the answer was read: whatever it earned, it was of the role's schema
    escalated: bool  # ReconcileGPT handed the case to a human
    answer: str  # the last turn's text


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamOutcome:
    """One team episode.

    Example: TeamOutcome(key="team/test/0/7/2", ..., reward=0.95, value=1.0, consensus=0.75, ...)
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    key: str
    difficulty: int
    sector: str
    reward: float  # R
    value: float  # V
    consensus: float  # C
    unresolved: float  # U
    escalation: float  # H: 1 for a wrong one
    agreement: float  # share of the specialists who accept
    escalated: bool
    well_formed: float  # share of reports, decision and votes that were read
    offers: dict[str, int]  # seat -> offers that stand, replies to questions included
    false_claims: dict[str, int]  # seat -> claims that were struck out
    funded: list[str]  # seats with a funded part
    questions: int  # asked by ReconcileGPT
    turns: int
    tokens: int
    reports: dict[str, str]
    decision: str
    votes: dict[str, str]
    best_option: bool | None = None  # whether the best plan's option was decided; None: not known
    hidden: bool | None = None  # a hidden profile (scenarios.company.coordination); None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcome:
    """One case of a suite that a team plays at its table.

    Example: SuiteOutcome(key="negotiation/0/7/8", difficulty=8, figures={"agreements": 1.0, "regret": 0.2},
                          said={"cto report": '{"deal": ...', "decision": ..., "cto vote": ...})
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    key: str
    difficulty: int
    figures: dict[str, float]
    said: dict[str, str]  # the texts behind the figures


Outcome = TypeVar("Outcome", RoleOutcome, TeamOutcome, SuiteOutcome)


class OutcomeFile(Generic[Outcome]):
    """The outcomes of one owner, stage and mode in one JSONL file, in the order of the scenarios."""

    def __init__(self, path: Path, kind: type[Outcome]) -> None:
        self.path = path
        self._adapter: TypeAdapter[Outcome] = TypeAdapter(kind)

    def complete(
        self,
        keys: Sequence[str],
        play_block: Callable[[int, int], Sequence[Outcome]],
        *,
        block_size: int = BLOCK_SIZE,
    ) -> list[Outcome]:
        """All outcomes; the blocks that the file lacks are played (`play_block(start, end)`) and appended.

        Raises:
            UserError: the file holds other scenarios than `keys`.
        """
        done = self.read()[: len(keys)]
        done = done if len(done) == len(keys) else done[: len(done) // block_size * block_size]
        for place, (outcome, key) in enumerate(zip(done, keys, strict=False), start=1):
            if outcome.key != key:
                raise UserError(
                    f"{self.path}:{place} is of {outcome.key}, not of {key}: it was evaluated on other"
                    " scenarios; evaluate with --again"
                )
        self._write(done)
        while len(done) < len(keys):
            end = min(len(done) + block_size, len(keys))
            block = list(play_block(len(done), end))
            if [outcome.key for outcome in block] != list(keys[len(done) : end]):
                raise ValueError(f"block {len(done)} to {end} came back with other scenarios")
            self._append(block)
            done += block
        return done

    def read(self) -> list[Outcome]:
        """Read all outcomes; a last line that a kill cut short is left out, no file holds nothing.

        Raises:
            UserError: a damaged line before the last.
        """
        outcomes: list[Outcome] = []
        for number, line in enumerate(read_lines(self.path), start=1):
            try:
                outcomes.append(self._adapter.validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"]) or "line"
                raise UserError(
                    f"{self.path}:{number} is no outcome ({where}: {first['msg']}); evaluate with --again"
                ) from None
        return outcomes

    def _write(self, outcomes: Sequence[Outcome]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, b"".join(self._adapter.dump_json(outcome) + b"\n" for outcome in outcomes))

    def _append(self, outcomes: Sequence[Outcome]) -> None:
        with LineFile(self.path) as file:
            file.add(*(self._adapter.dump_json(outcome) for outcome in outcomes))


def describe_solo(episode: SoloEpisode, *, sector: str | None = None) -> RoleOutcome:
    """Return the outcome of a role's play; the sector is the generated scenario's own unless given."""
    scenario, verdict, trajectory = episode.scenario, episode.verdict, episode.trajectory
    return RoleOutcome(
        key=scenario.key,
        difficulty=scenario.difficulty,
        sector=sector or str(scenario.facts.get("sector", "")),
        reward=verdict.reward,
        exact=verdict.exact,
        feasible=verdict.feasible,
        failure=verdict.failure,
        parts=dict(verdict.parts),
        turns=len(trajectory.turns),
        tool_calls=trajectory.num_tool_calls,
        failed_calls=trajectory.num_tool_calls - trajectory.num_valid_tool_calls,
        tokens=sum(trajectory.loss_mask),
        truncated=trajectory.truncated,
        well_formed=verdict.failure not in FORMAT_FAILURES,
        escalated=scenario.role == RECONCILER and _escalates(trajectory.final_text),
        answer=trajectory.final_text,
    )


def describe_episode(scenario: TeamScenario, episode: Episode, verdict: TeamVerdict) -> TeamOutcome:
    """Return the outcome of a team episode."""
    read = read_episode(scenario, episode)
    votes = [read.votes[seat] for seat in episode.votes]
    is_read = [
        *(read.table[seat] is not None for seat in episode.reports),
        read.decision is not None,
        *(vote is not None for vote in votes),
    ]
    reports = {seat: report for seat, report in read.table.items() if report is not None}
    return TeamOutcome(
        key=scenario.key,
        difficulty=scenario.difficulty,
        sector=scenario.sector,
        reward=verdict.reward,
        value=verdict.value,
        consensus=verdict.consensus,
        unresolved=verdict.unresolved,
        escalation=verdict.escalation,
        agreement=votes.count("accept") / len(votes) if votes else 0.0,
        escalated=read.decision is not None and read.decision.escalate,
        well_formed=sum(is_read) / len(is_read),
        offers={seat: len(report.offers) for seat, report in reports.items()},
        false_claims={seat: len(report.false_claims) for seat, report in reports.items()},
        funded=list(read.plan.funded) if read.plan else [],
        questions=len(episode.asked),
        turns=sum(len(trajectory.turns) for trajectory in episode.trajectories.values()),
        tokens=sum(sum(trajectory.loss_mask) for trajectory in episode.trajectories.values()),
        reports=dict(episode.reports),
        decision=episode.decision,
        votes=dict(episode.votes),
        best_option=decides_best_option(scenario, read.decision),
        hidden=is_hidden_profile(scenario.case),
    )


def decides_best_option(scenario: TeamScenario, decision: Decision | None) -> bool:
    """Return whether the decision names the best plan's option, or escalates where nothing can be run."""
    if decision is None:
        return False
    best = NO_OPTION if scenario.optimum is None else scenario.optimum.plan.option
    return (NO_OPTION if decision.escalate else decision.option) == best


def _escalates(text: str) -> bool:
    try:
        return parse_answer(text, Decision).escalate
    except AnswerError:
        return False
