"""The play table of a run: every sealed play as one JSON line, a role's answer or a team's episode.

scores/outcomes/STAGE-OWNER.MODE.jsonl; summary, details, comparisons and pages follow from these files alone.
Plays are made block by block, always the same ones together, and a block's lines are written and synced at
once. A killed evaluation goes on with the block that it lost and ends in the same numbers, bit for bit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from roles.base import FORMAT_FAILURES, AnswerError, parse_answer
from roles.errors import UserError
from roles.team import NO_OPTION, RECONCILER, SPECIALISTS, Decision
from scenarios.company.coordination import is_hidden_profile
from scenarios.team import TeamScenario
from simulator.agents.solo import SoloEpisode
from simulator.export.atomic_files import write_atomic
from simulator.line_files import LineFile, read_lines
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamVerdict

BLOCK_SIZE = 250  # plays that are made together; part of the result's definition, see the module
Mode = Literal["sampled", "greedy"]
MODES: tuple[Mode, ...] = ("sampled", "greedy")
TEAM = "team"  # owner of the episodes of a whole team
FOLDER = Path("scores") / "outcomes"  # in a run's folder
REPEATS_FOLDER = "repeats"  # in FOLDER: further plays of the team's first cases
FEEDBACK_STAGES = ("corrections", "dpo", "ppo")  # that learn from labels

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
    turns: int
    tokens: int  # sampled by all
    sequential: int  # of them on the longest chain of messages that wait for each other
    context: int  # tokens of the longest transcript of one agent
    reports: dict[str, str]
    decision: str
    votes: dict[str, str]
    asked: list[tuple[str, str]]  # questions of ReconcileGPT with the seats' replies
    cut_off: list[str]  # roles ended by a limit
    explanation: str  # of the verdict
    best_option: bool  # whether the best plan's option was decided
    hidden: bool  # a hidden profile (scenarios.company.coordination)


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

    def read_start(self, keys: Sequence[str]) -> list[Outcome]:
        """Read the outcomes of the first of these scenarios.

        Raises:
            UserError: as `read`, or an outcome of another scenario.
        """
        done = self.read()[: len(keys)]
        for place, (outcome, key) in enumerate(zip(done, keys, strict=False), start=1):
            if outcome.key != key:
                raise UserError(
                    f"{self.path}:{place} is of {outcome.key}, not of {key}: it was evaluated on other"
                    " scenarios; evaluate with --again"
                )
        return done

    def append(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes at the end; they are on disk when this returns."""
        with LineFile(self.path) as file:
            file.add(*(self._adapter.dump_json(outcome) for outcome in outcomes))


def complete_files(
    files: Sequence[OutcomeFile[Any]],
    keys: Sequence[str],
    play_block: Callable[[int, int], Sequence[Sequence[Any]]],
    *,
    block_size: int = BLOCK_SIZE,
) -> list[list[Any]]:
    """All outcomes of files that hold different plays of the same scenarios, file by file.

    Blocks of scenarios that any file lacks are played for all files (`play_block(start, end)`: outcomes by
    file) and appended.

    Raises:
        UserError: a file holds other scenarios than `keys`.
    """
    done = [file.read_start(keys) for file in files]
    start = min(map(len, done))
    start = start if start == len(keys) else start // block_size * block_size
    for file, outcomes in zip(files, done, strict=True):
        del outcomes[start:]
        write_outcomes(file.path, outcomes)
    while start < len(keys):
        end = min(start + block_size, len(keys))
        blocks = play_block(start, end)
        for file, outcomes, block in zip(files, done, blocks, strict=True):
            if [outcome.key for outcome in block] != list(keys[start:end]):
                raise ValueError(f"block {start} to {end} came back with other scenarios")
            file.append(block)
            outcomes += block
        start = end
    return done


def write_outcomes(path: Path, outcomes: Sequence[Any]) -> None:
    """Write outcomes of one kind as a whole file, all or nothing."""
    adapter = TypeAdapter(type(outcomes[0])) if outcomes else None
    write_atomic(path, b"".join(adapter.dump_json(one) + b"\n" for one in outcomes if adapter))


Play = RoleOutcome | TeamOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlays:
    """All sealed plays of a role, or of the team, after one stage, in the order of the scenarios.

    Example: StagePlays(owner="cto", stage="sft", sampled=[RoleOutcome(...)]).column("reward") == [1.0]
    """

    owner: str  # a role, or TEAM
    stage: str
    sampled: Sequence[Play]
    greedy: Sequence[Play] = ()  # of the same scenarios; empty where nothing was played greedily
    repeats: Sequence[Sequence[Any]] = ()  # further sampled plays of the first scenarios

    def __post_init__(self) -> None:
        if not self.sampled:
            raise ValueError(f"{self.owner}, {self.stage}: scores need at least one scenario")
        if self.greedy and len(self.greedy) != len(self.sampled):
            counts = f"{len(self.greedy)} greedy plays of {len(self.sampled)} scenarios"
            raise ValueError(f"{self.owner}, {self.stage}: {counts}")

    def column(self, name: str, mode: Mode = "sampled") -> list[Any]:
        """Return a field of every play."""
        return [getattr(play, name) for play in (self.sampled if mode == "sampled" else self.greedy)]


def outcome_path(folder: Path, stage: str, owner: str, mode: Mode) -> Path:
    """Return the file of the plays of a role, or of the team."""
    return folder / f"{stage}-{owner}.{mode}.jsonl"


def read_plays(run_path: Path) -> list[StagePlays]:
    """Return all plays of a run: the roles in their order, then the team; none where none is stored.

    Raises:
        UserError: a damaged file.
    """
    keys = []
    for path in sorted((run_path / FOLDER).glob("*.sampled.jsonl")):
        stage, dash, owner = path.name.removesuffix(".sampled.jsonl").rpartition("-")
        if not dash:
            raise UserError(f"{path} is not named STAGE-OWNER.sampled.jsonl")
        keys.append((owner, stage))
    order = [*SPECIALISTS, RECONCILER]
    keys.sort(key=lambda key: (order.index(key[0]) if key[0] in order else len(order), *key))
    found = [plays for owner, stage in keys if (plays := read_stage(run_path, stage, owner)) is not None]
    most = {one.owner: len(one.sampled) for one in sorted(found, key=lambda one: len(one.sampled))}
    for one in found:
        if len(one.sampled) < most[one.owner]:  # every stage of an owner plays the same scenarios
            path = outcome_path(run_path / FOLDER, one.stage, one.owner, "sampled")
            raise UserError(
                f"{path} holds {len(one.sampled)} plays of {most[one.owner]}; evaluate with --again"
            )
    return found


def read_stage(run_path: Path, stage: str, owner: str) -> StagePlays | None:
    """Return the plays of one owner and stage; None where none is stored.

    Raises:
        UserError: a damaged file.
    """
    folder = run_path / FOLDER
    kind: Any = TeamOutcome if owner == TEAM else RoleOutcome
    sampled, greedy = (OutcomeFile(outcome_path(folder, stage, owner, mode), kind).read() for mode in MODES)
    repeats = folder / REPEATS_FOLDER
    named = (
        re.fullmatch(r".*\.(\d+)\.jsonl", path.name) for path in repeats.glob(f"{stage}-{owner}.*.jsonl")
    )
    numbers = sorted(int(found[1]) for found in named if found)
    paths = [repeats / f"{stage}-{owner}.{number}.jsonl" for number in numbers]
    further = [OutcomeFile(path, kind).read() for path in paths]
    if not sampled:
        return None
    if greedy and len(greedy) != len(sampled):
        mode: Mode = "greedy" if len(greedy) < len(sampled) else "sampled"
        counts = sorted((len(greedy), len(sampled)))
        path = outcome_path(folder, stage, owner, mode)
        raise UserError(f"{path} holds {counts[0]} plays of {counts[1]}; evaluate with --again")
    return StagePlays(owner=owner, stage=stage, sampled=sampled, greedy=greedy, repeats=tuple(further))


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
        tokens=trajectory.num_own,
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
        **asdict(verdict),
        agreement=votes.count("accept") / len(votes) if votes else 0.0,
        escalated=read.decision is not None and read.decision.escalate,
        well_formed=sum(is_read) / len(is_read),
        offers={seat: len(report.offers) for seat, report in reports.items()},
        false_claims={seat: len(report.false_claims) for seat, report in reports.items()},
        funded=list(read.plan.funded) if read.plan else [],
        turns=sum(len(trajectory.turns) for trajectory in episode.trajectories.values()),
        tokens=sum(path.num_own for path in episode.trajectories.values()),
        sequential=count_sequential(episode),
        context=max((len(path.token_ids) for path in episode.trajectories.values()), default=0),
        reports=dict(episode.reports),
        decision=episode.decision,
        votes=dict(episode.votes),
        asked=[(one.ask, one.reply) for one in episode.asked],
        cut_off=[role for role, path in episode.trajectories.items() if path.truncated],
        best_option=decides_best_option(scenario, read.decision),
        hidden=is_hidden_profile(scenario.case),
    )


def count_sequential(episode: Episode) -> int:
    """Sampled tokens that had to be written one after another.

    They are those of the longest report, of all that ReconcileGPT (or a single agent) wrote, of the replies
    to it, and of the votes of the seat that wrote most there.
    """
    replies = {question.reply for question in episode.asked}
    reports, votes, between = [0], [0], 0
    for role, path in episode.trajectories.items():
        sizes = [len(turn.completion_ids) for turn in path.turns]
        if role not in episode.reports:
            between += sum(sizes)
            continue
        num_turns = path.count_turns_to(episode.reports[role])
        reports.append(sum(sizes[:num_turns]))
        after = list(zip(path.turns[num_turns:], sizes[num_turns:], strict=True))
        replied = sum(size for turn, size in after if turn.text in replies)
        between += replied
        votes.append(sum(sizes[num_turns:]) - replied)
    return max(reports) + between + max(votes)


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
