"""`emads simulate --protocol full`: cases over the human gate, in a store that can be taken up again."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from emads.commands.simulation_outputs import Outputs, watching
from evaluation.minutes.governed_minutes import write_governed_minutes
from evaluation.minutes.governed_text import render_governed
from evaluation.minutes.minutes import minutes_file
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import NO_OPTION, Decision
from scenarios.team import TeamScenario, decision_value, generate
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.agents.scripted_policies import oracle_team
from simulator.chat_plain import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.export.governed_episodes import write_governed, write_governed_atif
from simulator.governance.free_outcomes import FreeOutcomes
from simulator.governance.gate.approvals import KEY_BYTES, find_key
from simulator.governance.gate.reviewers import (
    Reviewer,
    ReviewRequest,
    SimulatedReviewer,
    TerminalReviewer,
    score_by_risk,
)
from simulator.governance.outcomes import Outcomes, SimulatedOutcomes
from simulator.governance.runner import GovernedEpisode, open_office, play_governed
from simulator.governance.store.episode_record import GovernedRecord
from simulator.governance.store.reading import read_record
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode
from training.runs.run_folder import Run

SCRIPTED = "scripted"  # in place of a run: experts that hold the cases
SCRIPTED_DIFFICULTIES = (1, 2)
REVIEWERS = ("simulated", "terminal")
ERROR_RATE = 0.1  # of the simulated reviewer
ROUNDS = 2
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")

Case = TeamScenario | FreeCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Who plays what: the cases, the seating, the weights of the team reward, and what the team is called."""

    cases: Sequence[Case]
    seating: Seating
    weights: TeamRewardWeights
    label: str


def simulate_governed(
    team: str,
    stage: str,
    *,
    cases: Sequence[Path] = (),
    index: int = 0,
    count: int = 1,
    reviewer: str = "simulated",
    db: Path | None = None,
    outputs: Outputs | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    world: int = 0,
) -> list[GovernedEpisode]:
    """Play written cases, or `count` test cases from `index` on; print and write each, and return them.

    `world` seeds what happens when plans are carried out; a case in another world is another thread. The
    store at `db` keeps everything, its key stands beside it; None: nothing is kept.

    Raises:
        UserError: no such run, stage or reviewer, a damaged case, or a store that cannot be used.
    """
    if reviewer not in REVIEWERS:
        raise unknown("reviewer", reviewer, list(REVIEWERS))
    outputs = outputs or Outputs()
    indices = range(index, index + count)
    seat = _seat_experts if team == SCRIPTED else _seat_run
    table = seat(Path(team), stage, cases, indices)
    person: Reviewer = TerminalReviewer() if reviewer == "terminal" else make_reviewer(table.cases)
    with watching(outputs, len(table.cases), is_asking=reviewer == "terminal") as watch:
        stream = f"{table.seating.stream}/world {world}" if world else table.seating.stream
        seating = replace(
            table.seating, stream=stream, watch=watch, kinds=kinds or {}, limits=limits or AgentLimits()
        )
        played = asyncio.run(_play(table.cases, seating, person, db, world))
    for episode, _ in played:
        print(f"{episode.case_key}  {episode.status}" if outputs.live else render_governed(episode) + "\n")
    for line in _write(table, seating, [record for _, record in played], outputs):
        print(line)
    return [episode for episode, _ in played]


def make_reviewer(
    cases: Sequence[Case], *, error_rate: float = ERROR_RATE, seed: int = 0
) -> SimulatedReviewer:
    """A simulated reviewer that errs at the stated rate.

    It knows what each option of a generated case is worth; in a written one it goes by the reports' pressing.
    """
    by_key = {case.key: case for case in cases}

    def score(request: ReviewRequest, option: str) -> float:
        case = by_key[request.proposal.case]
        if not isinstance(case, TeamScenario):
            return score_by_risk(request, option)
        return decision_value(case, Decision(option=option, escalate=option == NO_OPTION))

    return SimulatedReviewer(score, error_rate=error_rate, seed=seed)


def make_outcomes(case: Case, *, world: int = 0) -> Outcomes:
    """The world that the case's plans are carried out in."""
    if isinstance(case, TeamScenario):
        return SimulatedOutcomes(case, seed=world)
    return FreeOutcomes(case, seed=world)


async def _play(
    cases: Sequence[Case], seating: Seating, reviewer: Reviewer, db: Path | None, world: int
) -> list[tuple[GovernedEpisode, GovernedRecord]]:
    key = secrets.token_bytes(KEY_BYTES) if db is None else find_key(db.with_name(f"{db.name}.key"))
    concurrency = 1 if reviewer.name == "terminal" else 8
    async with open_office(db, key=key) as office:
        played = await play_governed(
            cases,
            office,
            seating,
            reviewer,
            partial(make_outcomes, world=world),
            rounds=ROUNDS,
            concurrency=concurrency,
        )
        return [
            (episode, read_record(case, episode, office, stream=seating.stream))
            for case, episode in zip(cases, played, strict=True)
        ]


def _seat_experts(_: Path, stage: str, files: Sequence[Path], indices: range) -> Table:
    levels = SCRIPTED_DIFFICULTIES
    cases: list[Case] = [read_case(file) for file in files]
    for file, case in zip(files, cases, strict=True):
        _check_figures(file, case)
    if not files:
        cases = [generate("test", 0, index, levels[index % len(levels)]) for index in indices]
    chat = PlainChat()
    seating = Seating(
        team={role: role for role in ROLES},
        engine=ScriptedEngine(chat, seeded=oracle_team(cases)),
        chat=chat,
        sampling=Sampling(max_completion_tokens=300),
        stream=SCRIPTED,
        max_turns=MAX_TURNS,
        roles=ROLES,
    )
    return Table(cases=cases, seating=seating, weights=TeamRewardWeights(), label="scripted team")


def _check_figures(file: Path, case: PlayableCase) -> None:
    """Refuse a case that the scripted experts cannot read.

    Raises:
        UserError: names file and seat.
    """
    for role, seat in case.seats.items():
        if not seat.facts:
            raise UserError(
                f"{file}: seats.{role} gives words alone, and the scripted experts read figures;"
                f" add stakes, limit and utilities, or play it with --team RUN"
            )


def _seat_run(path: Path, stage: str, files: Sequence[Path], indices: range) -> Table:
    run = Run.open(path)
    config = run.config
    cases: list[Case] = [read_case(file, figures_only=config.model.short_prompts) for file in files]
    from emads.commands.simulation import check_room
    from training.data.demonstrations import team_scenario
    from training.models.base_model import quiet_libraries
    from training.models.weights import load_team
    from training.stages import stages

    quiet_libraries()
    models, tokenizer = load_team(run, stage)
    chat = stages.make_chat(tokenizer, config)
    check_room(
        {file: case for file, case in zip(files, cases, strict=True) if isinstance(case, FreeCase)},
        models,
        chat,
    )
    if not files:
        data = config.data
        cases = [
            team_scenario("test", data.seed, index, data.difficulties, data.conventions) for index in indices
        ]
    seating = Seating(
        team={role: role for role in models},
        engine=stages.team_engine(models, tokenizer, config, stage),
        chat=chat,
        sampling=Sampling(temperature=0.0, max_completion_tokens=config.marl.max_completion_tokens),
        stream=f"{config.name}/{stage}",
        max_turns=MAX_TURNS,
        roles=ROLES,
    )
    weights = stages.reward_weights(config)
    return Table(cases=cases, seating=seating, weights=weights, label=f"{stage} team of run {config.name}")


def _write(table: Table, seating: Seating, records: Sequence[GovernedRecord], outputs: Outputs) -> list[str]:
    """Write what was asked for; one line for each place."""
    lines = []
    for case, record in zip(table.cases, records, strict=True):
        name = minutes_file(record.episode)
        if outputs.html is not None:
            page = write_governed_minutes(
                outputs.html / name,
                case,
                record,
                label=table.label,
                chat=seating.chat,
                verdict=_score(case, record, table.weights),
                weights=table.weights,
                speakers=seating.speakers(case),
            )
            lines.append(f"minutes:  {page}")
        if outputs.atif is not None:
            document = outputs.atif / name.replace(".html", ".json")
            write_governed_atif(document, record, seating.chat, speakers=seating.speakers(case))
            lines.append(f"ATIF:     {document}")
    if outputs.episodes is not None:
        write_governed(outputs.episodes, records)
        lines.append(f"episodes: {outputs.episodes}")
    if outputs.spans is not None:
        lines.append(f"spans:    {outputs.spans}")
    return lines


def _score(case: Case, record: GovernedRecord, weights: TeamRewardWeights) -> TeamVerdict | None:
    """What the last draft and its votes are worth; None without truth, or before the end."""
    if not isinstance(case, TeamScenario) or record.status not in CLOSED:
        return None
    return score_episode(case, record.episode, weights)
