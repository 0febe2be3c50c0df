"""`emads simulate --protocol full`: cases over the human gate, in a store that can be taken up again."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from emads.commands.simulate import USER_MISTAKE, check_files, read_cases
from emads.commands.simulate_outputs import Outputs, watching
from emads.teams import SCRIPTED, Team, load_team
from evaluation.minutes.governed_terminal_text import render_governed
from evaluation.minutes.minutes import write_minutes
from evaluation.minutes.page_files import make_index_row, minutes_file, write_index
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import NO_OPTION, Decision
from scenarios.team import TeamScenario, decision_value
from scenarios.written.written_case import FreeCase
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.export.governed_episodes import write_governed, write_governed_atif
from simulator.governance.free_outcomes import FreeOutcomes
from simulator.governance.gate.approvals import KEY_BYTES, find_key
from simulator.governance.gate.eligibility import SIMULATED, Reviewers
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.reviewers import (
    Reviewer,
    SimulatedReviewer,
    TerminalReviewer,
    score_by_risk,
)
from simulator.governance.outcomes import Outcomes, SimulatedOutcomes
from simulator.governance.record_reading import read_record
from simulator.governance.runner import GovernedEpisode, open_services, play_governed
from simulator.governance.store.episode_record import GovernedRecord
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

EMBEDDED = "transformers"  # the engine that this protocol plays on
REVIEWERS = ("simulated", "terminal")
ERROR_RATE = 0.1  # of the simulated reviewer
ROUNDS = 2
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")

Case = TeamScenario | FreeCase


def simulate_full(
    source: str | Path,
    stage: str,
    *,
    cases: Sequence[Path] = (),
    index: int = 0,
    count: int = 1,
    reviewer: str | None = None,
    db: Path | None = None,
    outputs: Outputs | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    world: int = 0,
) -> int:
    """Play written cases, or `count` test scenarios from `index` on; print and write each.

    `reviewer`: simulated or terminal; None: simulated, unless a case in the store waits for a person.
    `source`: a run, or "scripted". `world` seeds what happens when plans are carried out; a case in another
    world is another thread. The store at `db` keeps everything, its key beside it; None: nothing is kept.

    Returns: 0, or 2 where a case could not be played; the others were.

    Raises:
        UserError: no such run, stage or reviewer, no case that can be played, or an unusable store.
    """
    if reviewer not in (None, *REVIEWERS):
        raise unknown("reviewer", str(reviewer), list(REVIEWERS))
    outputs = outputs or Outputs()
    check_files(cases)
    team = load_team(source, stage=stage, engine=None if source == SCRIPTED else EMBEDDED)
    written, num_skipped = read_cases(team, cases)
    chosen: list[Case] = [*written] or [team.draw_case(index + i) for i in range(count)]
    person: Reviewer = TerminalReviewer() if reviewer == "terminal" else make_reviewer(chosen)
    with (
        watching(outputs, len(chosen), is_asking=reviewer == "terminal") as watch,
        team.serve(chosen) as engine,
    ):
        seating = Seating(
            team={role: role for role in ROLES},
            engine=engine,
            chat=team.chat,
            sampling=team.sampling,
            stream=f"{team.stream}/world {world}" if world else team.stream,
            max_turns=MAX_TURNS,
            roles=ROLES,
            watch=watch,
            kinds=kinds or {},
            limits=limits or AgentLimits(),
        )
        played = asyncio.run(_play(chosen, seating, person, db, world, is_named=reviewer is not None))
    for episode, _ in played:
        print(f"{episode.case_key}  {episode.status}" if outputs.live else render_governed(episode) + "\n")
    for line in _write(chosen, team, seating, [record for _, record in played], outputs):
        print(line)
    return USER_MISTAKE if num_skipped else 0


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
    cases: Sequence[Case],
    seating: Seating,
    reviewer: Reviewer,
    db: Path | None,
    world: int,
    *,
    is_named: bool,
) -> list[tuple[GovernedEpisode, GovernedRecord]]:
    key = secrets.token_bytes(KEY_BYTES) if db is None else find_key(db.with_name(f"{db.name}.key"))
    concurrency = 1 if reviewer.name == "terminal" else 8
    async with open_services(db, key=key) as services:
        if reviewer.name == SIMULATED:
            _check_nobody_waits(services.desk.reviewers, cases, seating.stream, is_named=is_named)
        played = await play_governed(
            cases,
            services,
            seating,
            reviewer,
            partial(make_outcomes, world=world),
            rounds=ROUNDS,
            concurrency=concurrency,
        )
        return [
            (episode, read_record(case, episode, services, stream=seating.stream))
            for case, episode in zip(cases, played, strict=True)
        ]


def _check_nobody_waits(reviewers: Reviewers, cases: Sequence[Case], stream: str, *, is_named: bool) -> None:
    """Refuse the simulated reviewer over a case that waits for a person, and unnamed where people rule.

    Raises:
        UserError: the first such case, or no reviewer named in a store in which a person was asked.
    """
    waiting = set(reviewers.list_awaiting())
    for case in cases:
        if f"{stream}/{case.key}" in waiting:
            raise UserError(f"{case.key} waits for a person; run again with --reviewer terminal")
    if waiting and not is_named:
        raise UserError("cases in this store wait for a person; name --reviewer terminal or simulated")


def _write(
    cases: Sequence[Case],
    team: Team,
    seating: Seating,
    records: Sequence[GovernedRecord],
    outputs: Outputs,
) -> list[str]:
    """Write what was asked for; one line for each place."""
    lines = []
    for case, record in zip(cases, records, strict=True):
        name = minutes_file(record.episode)
        if outputs.html is not None:
            page = write_minutes(
                outputs.html / name,
                case,
                record,
                label=team.label,
                chat=seating.chat,
                verdict=_score(case, record, team.weights),
                weights=team.weights,
                speakers=seating.list_prompt_roles(case),
            )
            lines.append(f"minutes:  {page}")
        if outputs.atif is not None:
            document = outputs.atif / name.replace(".html", ".json")
            write_governed_atif(document, record, seating.chat, speakers=seating.list_prompt_roles(case))
            lines.append(f"ATIF:     {document}")
    if outputs.html is not None and len(records) > 1:
        rows = [
            make_index_row(case, record, _score(case, record, team.weights))
            for case, record in zip(cases, records, strict=True)
        ]
        lines.append(f"index:    {write_index(outputs.html, rows, label=team.label)}")
    if outputs.episodes is not None:
        write_governed(outputs.episodes, records)
        lines.append(f"episodes: {outputs.episodes}")
    if outputs.spans is not None:
        lines.append(f"spans:    {outputs.spans}")
    return lines


def _score(case: Case, record: GovernedRecord, weights: TeamRewardWeights) -> TeamVerdict | None:
    """Score the last draft and its votes; None without truth, or before the end."""
    if not isinstance(case, TeamScenario) or record.status not in CLOSED:
        return None
    return score_episode(case, record.episode, weights)
