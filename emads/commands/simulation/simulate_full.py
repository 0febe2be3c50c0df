"""`emads simulate --protocol full`: cases over the human gate, in a store that can be taken up again."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from emads.commands.simulation.ruling_labels import keep_ruling_labels
from emads.commands.simulation.simulate import USER_MISTAKE, check_files, end_play, read_cases
from emads.commands.simulation.simulate_outputs import Outputs, Shown, watching, write_outputs
from emads.played_case import FaultyPlayError
from emads.seats.players import Seats, has_person
from emads.seats.prices import ApiOptions
from emads.teams import SCRIPTED, Team, load_team
from evaluation.minutes.governed_in_words import render_governed
from evaluation.minutes.governed_truth import plan_course
from evaluation.minutes.minutes import render_minutes
from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios.execution.world import find_company, list_companies
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.agents.scripted_policies import remember_cases
from simulator.export.episode_files import write_governed, write_governed_atif
from simulator.governance.gate import SIMULATED, TERMINAL, WEB
from simulator.governance.governed_reward import score_governed
from simulator.governance.outcomes import FreeOutcomes, Outcomes, SimulatedOutcomes
from simulator.governance.record import GovernedRecord, read_record
from simulator.governance.reviewers import (
    Reviewer,
    SimulatedReviewer,
    TerminalReviewer,
    WebReviewer,
    score_by_worth,
)
from simulator.governance.runner import GovernanceServices, GovernedEpisode, open_services, play_governed
from simulator.governance.seals import KEY_BYTES, find_key
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating
from simulator.reward import TeamRewardWeights, TeamVerdict

EMBEDDED = "transformers"  # the engine that this protocol plays on
REVIEWERS = ("simulated", "terminal", WEB)
ERROR_RATE = 0.1  # of the simulated reviewer
LEAST_SHARE = 0.9  # of the best plan's worth that it wants a proposal to reach
ROUNDS = 2
CONCURRENCY = 8  # cases at once
REVIEW_STORE = Path("review/store.db")  # in a run's folder
MOST_DRAWN = 600  # test scenarios that are looked through for a company's cases
FAILED = "failed"  # status of an episode that an engine could not finish
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")

Case = TeamScenario | FreeCase


def simulate_full(
    source: str | Path | None,
    stage: str | None,
    *,
    cases: Sequence[Path] = (),
    index: int = 0,
    count: int = 1,
    reviewer: str | None = None,
    db: Path | None = None,
    outputs: Outputs | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    seats: Seats | None = None,
    api: ApiOptions | None = None,
    questions: int | None = None,
    world: int = 0,
    company: str | None = None,
) -> int:
    """Play written cases, or `count` test scenarios from `index` on; print and write each.

    `reviewer`: simulated, terminal or web; None: simulated, unless a case in the store waits for a person.
    `source`: a run, or "scripted"; `seats` give seats other players, asked as `api` says.
    `questions`: see `load_team`.
    `world` seeds what happens when plans are carried out; a case in another
    world is another thread. `company`: its cases one after the other, from `index` on, with hidden traits.
    The store at `db` keeps everything, its key beside it; None: nothing is kept, but that a run keeps what
    people review in the browser in its own folder.

    Returns: 0, or 2 where a case could not be played; the others were.

    Raises:
        UserError: no such run, stage or reviewer, no case that can be played, or an unusable store.
        FaultyPlayError: an engine failed in a case, after all files are written.
    """
    if reviewer not in (None, *REVIEWERS):
        raise unknown("reviewer", str(reviewer), list(REVIEWERS))
    outputs = outputs or Outputs()
    db = find_store(source) if db is None and reviewer == WEB else db
    if seats is not None and db is not None and reviewer == WEB:
        seats = seats.in_browser(db)
    check_files(cases)
    team = load_team(
        source,
        stage=stage,
        engine=None if source == SCRIPTED else EMBEDDED,
        seats=seats or (),
        api=api,
        questions=questions,
    )
    written, num_skipped = read_cases(team, cases)
    chosen: list[Case] = [*written] or draw_cases(team, index, count, company)
    known: list[PlayableCase] = list(chosen)  # those that arise from re-plans are added
    with (
        watching(outputs, len(chosen), is_asking=reviewer == TERMINAL or has_person(seats)) as watch,
        team.serve(known) as engine,
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
            make_game=remember_cases(known, team.make_game),
        )
        make_world = partial(make_outcomes, world=world, with_traits=company is not None)
        turns = (
            [[case] for case in chosen] if company else [chosen]
        )  # one case after the other, or all at once
        played = asyncio.run(_play(turns, seating, reviewer, db, make_world))
    for episode, record in played:
        print(f"{episode.case_key}  {episode.status}" if outputs.live else render_governed(record) + "\n")
    records = [record for _, record in played]
    shown = [
        _show(case, record, team, seating, make_world(case))
        for case, record in zip(chosen, records, strict=True)
    ]
    for line in write_outputs(outputs, shown, team.label, partial(write_governed, records=records)):
        print(line)
    for line in keep_ruling_labels(chosen, records, team, seating, db):
        print(line)
    status = end_play(team)
    faults = {one.case_key: one.error or "" for one, _ in played if one.status == FAILED}
    if faults and not status:
        raise FaultyPlayError(faults, len(played), team.label)
    return status or (USER_MISTAKE if num_skipped else 0)


def draw_cases(team: Team, index: int, count: int, company: str | None) -> list[Case]:
    """`count` test scenarios from `index` on: any, or those of one company.

    Raises:
        UserError: no such company, or too few of its cases among MOST_DRAWN.
    """
    if company is None:
        return [team.draw_case(index + number) for number in range(count)]
    if company not in list_companies():
        raise unknown("company", company, list_companies())
    found: list[Case] = []
    for number in range(index, index + MOST_DRAWN):
        case = team.draw_case(number)
        if find_company(case.case) == company:
            found.append(case)
        if len(found) == count:
            return found
    raise UserError(f"{company} has {len(found)} cases among {MOST_DRAWN}, not {count}; lower --count")


def find_store(source: str | Path | None) -> Path:
    """Return the store in which a run keeps what people review.

    Raises:
        UserError: no run plays.
    """
    if source is None or str(source) == SCRIPTED:
        raise UserError("--reviewer web needs --db FILE: the store that `emads review FILE` opens")
    from training.runs.run_folder import Run

    path = Run.open(Path(source)).path / REVIEW_STORE
    path.parent.mkdir(exist_ok=True)
    return path


def make_reviewer(*, error_rate: float = ERROR_RATE, seed: int = 0) -> SimulatedReviewer:
    """A simulated reviewer that goes by the figures that it is shown, and errs at the stated rate."""
    return SimulatedReviewer(score_by_worth, error_rate=error_rate, seed=seed, least_share=LEAST_SHARE)


def make_outcomes(case: Case, *, world: int = 0, with_traits: bool = False) -> Outcomes:
    """The world that the case's plans are carried out in."""
    if isinstance(case, TeamScenario):
        return SimulatedOutcomes(case, seed=world, with_traits=with_traits)
    return FreeOutcomes(case, seed=world)


async def _play(
    turns: Sequence[Sequence[Case]],
    seating: Seating,
    named: str | None,
    db: Path | None,
    make_world: Callable[[Case], Outcomes],
) -> list[tuple[GovernedEpisode, GovernedRecord]]:
    key = secrets.token_bytes(KEY_BYTES) if db is None else find_key(db.with_name(f"{db.name}.key"))
    played: list[tuple[GovernedEpisode, GovernedRecord]] = []
    async with open_services(db, key=key) as services:
        if named == WEB:
            print(f"plans wait for people; open them in the browser: emads review {db}", flush=True)
        reviewer = _choose_reviewer(named, services)
        for cases in turns:
            if reviewer.name == SIMULATED:
                is_named = named is not None
                _check_nobody_waits(services, cases, seating.stream, is_named=is_named)
            # in the browser all cases wait side by side
            concurrency = {TERMINAL: 1, WEB: max(CONCURRENCY, len(cases))}.get(reviewer.name, CONCURRENCY)
            episodes = await play_governed(
                cases, services, seating, reviewer, make_world, rounds=ROUNDS, concurrency=concurrency
            )
            played += [
                (
                    episode,
                    read_record(case, episode, services, stream=seating.stream),
                )
                for case, episode in zip(cases, episodes, strict=True)
            ]
    return played


def _choose_reviewer(named: str | None, services: GovernanceServices) -> Reviewer:
    match named:
        case "terminal":
            return TerminalReviewer()
        case "web":
            return WebReviewer(services.desk.find_answer)
        case _:
            return make_reviewer()


def _check_nobody_waits(
    services: GovernanceServices, cases: Sequence[Case], stream: str, *, is_named: bool
) -> None:
    """Refuse the simulated reviewer over a case that waits for a person, and unnamed where people rule.

    Raises:
        UserError: the first such case, or no reviewer named in a store in which a person was asked.
    """
    threads = services.desk.list_threads()
    waiting = {thread for thread in threads if services.log.find(thread, "asked")}
    for case in cases:
        if f"{stream}/{case.key}" in waiting:
            raise UserError(f"{case.key} waits for a person; run again with --reviewer terminal or web")
    if waiting and not is_named:
        raise UserError("cases in this store wait for a person; name --reviewer terminal, web or simulated")


def _show(case: Case, record: GovernedRecord, team: Team, seating: Seating, outcomes: Outcomes) -> Shown:
    verdict, speakers = _score(record, team.weights, outcomes), seating.list_prompt_roles(case)
    page = partial(
        render_minutes,
        case,
        record,
        label=team.label,
        chat=seating.chat,
        verdict=verdict,
        weights=team.weights,
        speakers=speakers,
        course=plan_course(record, outcomes),
    )
    atif = partial(write_governed_atif, record=record, chat=seating.chat, speakers=speakers)
    return Shown(case=case, played=record, verdict=verdict, page=page, write_atif=atif)


def _score(record: GovernedRecord, weights: TeamRewardWeights, outcomes: Outcomes) -> TeamVerdict | None:
    """Score what is in place in the end; None without truth, or before the end."""
    is_closed = record.status in CLOSED and bool(record.chapters)
    if not isinstance(outcomes, SimulatedOutcomes) or not is_closed:
        return None
    return score_governed(record, outcomes, weights)
