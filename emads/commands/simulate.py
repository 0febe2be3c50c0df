"""`emads simulate`: a team plays test scenarios or written cases; text, pages and files say what happened.

The protocol `full` plays over the human gate, in a store that can be taken up again.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emads.api import FaultyPlayError, play_cases, refuse_faulty
from emads.seats import EMBEDDED, SCRIPTED, STOPPED
from emads.seats.person import TerminalReviewer
from emads.seats.players import ApiOptions, RunPlayer, Seats
from emads.team import Team, load_team
from evaluation.minutes.governed import PlannedCourse, plan_course
from evaluation.minutes.live_view import live_view
from evaluation.minutes.minutes import (
    NOT_SCORED,
    minutes_file,
    render_governed,
    render_minutes,
    write_index,
)
from evaluation.pages import write_page
from roles.base import Role
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.execution import find_company, list_companies
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.agents.scripted_policies import remember_cases
from simulator.export.atif import write_atif
from simulator.export.episode_files import episode_to_json, governed_to_json, write_lines
from simulator.governance.gate import SIMULATED, TERMINAL, WEB
from simulator.governance.outcomes import FreeOutcomes, Outcomes, SimulatedOutcomes
from simulator.governance.record import GovernedRecord, read_record, score_governed
from simulator.governance.reviewers import Reviewer, SimulatedReviewer, WebReviewer, score_by_worth
from simulator.governance.runner import GovernanceServices, GovernedEpisode, open_services, play_governed
from simulator.governance.seals import KEY_BYTES, find_key
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating, list_prompt_roles
from simulator.observer import Watch
from simulator.records import Episode
from simulator.reward import TeamVerdict

USER_MISTAKE = 2  # exit status
REVIEWERS = (SIMULATED, TERMINAL, WEB)
ERROR_RATE = 0.1  # of the simulated reviewer
LEAST_SHARE = 0.9  # of the best plan's worth that it wants a proposal to reach
ROUNDS = 2
CONCURRENCY = 8  # cases at once
REVIEW_STORE = Path("review/store.db")  # in a run's folder
MOST_DRAWN = 600  # test scenarios that are looked through for a company's cases
FAILED = "failed"  # status of an episode that an engine could not finish
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")

Case = TeamScenario | FreeCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Paths of the files to write beside the text on the terminal; None: no file.

    Example: Outputs(html=Path("runs/minutes"), episodes=Path("runs/episodes.jsonl"))
    """

    html: Path | None = None  # folder for one page of minutes per episode
    episodes: Path | None = None  # JSONL file
    atif: Path | None = None  # folder for one ATIF document per episode
    live: bool = False  # events on the terminal while they happen, in place of the text at the end

    def watch(self, num_cases: int) -> Watch | None:
        """Return what shows events of the episodes while they happen; None where that is not asked for."""
        return live_view(with_keys=num_cases > 1) if self.live else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One episode as files show it."""

    case: PlayableCase
    played: Episode | GovernedRecord
    verdict: TeamVerdict | None
    speakers: Mapping[str, Role]  # as they were introduced
    course: PlannedCourse | None = None  # of a governed record


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The team and the cases of a call, as the command line names them.

    Example: Chosen(source="scripted", index=7)
    """

    source: str | Path | None  # "scripted", or the folder of a run or an exported team; None: `seats` say all
    stage: str | None = None
    seats: Seats | None = None
    api: ApiOptions | None = None
    questions: int | None = None  # see `load_team`
    cases: Sequence[Path] = ()  # case files; none: `count` test scenarios from `index` on
    index: int = 0
    count: int = 1
    kinds: Mapping[str, AgentKind] | None = None
    limits: AgentLimits | None = None

    def load(self, *, engine: str | None = None, seats: Seats | None = None) -> Team:
        """Return the team; case files are read first, since weights take seconds to load.

        Raises:
            UserError: no case file can be read, or as `load_team`.
        """
        _read_files(read_case, self.cases)
        return load_team(
            self.source,
            stage=self.stage,
            engine=engine,
            seats=seats or self.seats or (),
            api=self.api,
            questions=self.questions,
        )


def simulate(chosen: Chosen, outputs: Outputs) -> int:
    """Play by the protocol `assess`; print who said what.

    Returns: 0; 2 where a case could not be played, 8 where a cost limit stopped it; the others were.

    Raises:
        FaultyPlayError: an engine failed in a case, after all files are written.
        UserError: no case that can be played, no such run, or no weights of this stage.
    """
    team = chosen.load()
    written, num_skipped = read_cases(team, chosen.cases)
    cases: list[PlayableCase] = [*written] or [team.draw_case(chosen.index + i) for i in range(chosen.count)]
    kinds = chosen.kinds or {}
    played = play_cases(team, cases, watch=outputs.watch(len(cases)), kinds=kinds, limits=chosen.limits)
    shown = []
    for one in played:
        result = one.episode.error or NOT_SCORED
        if one.verdict is not None:
            result = f"team reward {one.verdict.reward:.3f}: {one.verdict.explanation}"
        print(f"{one.case.key}  {result}" if outputs.live else one.text)
        speakers = list_prompt_roles(one.case, team.make_game(one.case), kinds)
        shown.append(Shown(case=one.case, played=one.episode, verdict=one.verdict, speakers=speakers))
    for line in write_outputs(outputs, shown, team):
        print(line)
    status = end_play(team)
    if not status:
        refuse_faulty(played)
    return status or (USER_MISTAKE if num_skipped else 0)


def simulate_full(
    chosen: Chosen,
    outputs: Outputs,
    *,
    reviewer: str | None = None,
    db: Path | None = None,
    world: int = 0,
    company: str | None = None,
) -> int:
    """Play by the protocol `full`: also approval, execution, monitoring, re-plans.

    `reviewer`: simulated, terminal or web; None: simulated, unless a case in the store waits for a person.
    `world` seeds what happens when plans are carried out; a case in another world is another thread.
    `company`: its cases one after the other, from `index` on, with hidden traits. The store at `db` keeps
    everything, its key beside it; None: nothing is kept, but that a run keeps what people review in the
    browser in its own folder.

    Returns, raises: as `simulate`, and UserError for an unknown reviewer or an unusable store.
    """
    if reviewer not in (None, *REVIEWERS):
        raise unknown("reviewer", str(reviewer), list(REVIEWERS))
    db = find_store(chosen.source) if db is None and reviewer == WEB else db
    seats = chosen.seats
    if seats is not None and db is not None and reviewer == WEB:
        seats = seats.in_browser(db)
    team = chosen.load(engine=None if chosen.source == SCRIPTED else EMBEDDED, seats=seats)
    written, num_skipped = read_cases(team, chosen.cases)
    cases: list[Case] = [*written] or draw_cases(team, chosen.index, chosen.count, company)
    known: list[PlayableCase] = list(cases)  # those that arise from re-plans are added
    with team.serve(known) as engine:
        seating = Seating(
            team={role: role for role in ROLES},
            engine=engine,
            chat=team.chat,
            sampling=team.sampling,
            stream=f"{team.stream}/world {world}" if world else team.stream,
            max_turns=MAX_TURNS,
            roles=ROLES,
            watch=outputs.watch(len(cases)),
            kinds=chosen.kinds or {},
            limits=chosen.limits or AgentLimits(),
            make_game=remember_cases(known, team.make_game),
        )

        def make_world(case: Case) -> Outcomes:
            if isinstance(case, TeamScenario):
                return SimulatedOutcomes(case, seed=world, with_traits=company is not None)
            return FreeOutcomes(case, seed=world)

        turns = [[case] for case in cases] if company else [cases]  # one after the other, or all at once
        played = asyncio.run(_play(turns, seating, reviewer, db, make_world))
    records = [record for _, record in played]
    shown = []
    for case, (episode, record) in zip(cases, played, strict=True):
        print(f"{episode.case_key}  {episode.status}" if outputs.live else render_governed(record) + "\n")
        outcomes, verdict = make_world(case), None  # without truth, or before the end
        if isinstance(outcomes, SimulatedOutcomes) and record.status in CLOSED and record.chapters:
            verdict = score_governed(record, outcomes, team.weights)
        speakers = list_prompt_roles(case, seating.make_game(case), seating.kinds)
        course = plan_course(record, outcomes)
        shown.append(Shown(case=case, played=record, verdict=verdict, speakers=speakers, course=course))
    lines = write_outputs(outputs, shown, team)
    lines += keep_ruling_labels(cases, records, team, seating, db)
    for line in lines:
        print(line)
    status = end_play(team)
    faults = {one.case_key: one.error or "" for one, _ in played if one.status == FAILED}
    if faults and not status:
        raise FaultyPlayError(faults, len(played), team.label)
    return status or (USER_MISTAKE if num_skipped else 0)


def write_outputs(outputs: Outputs, shown: Sequence[Shown], team: Team) -> list[str]:
    """Write what was asked for; return one line for each place."""
    lines = []
    for one in shown:
        played = one.played
        name = minutes_file(played if isinstance(played, Episode) else played.episode)
        if outputs.html is not None:
            page = render_minutes(
                one.case,
                played,
                label=team.label,
                chat=team.chat,
                verdict=one.verdict,
                weights=team.weights,
                speakers=one.speakers,
                course=one.course,
            )
            lines.append(f"minutes:  {write_page(outputs.html / name, page)}")
        if outputs.atif is not None:
            document = outputs.atif / name.replace(".html", ".json")
            write_atif(document, played=played, chat=team.chat, roles=one.speakers)
            lines.append(f"ATIF:     {document}")
    if outputs.html is not None and len(shown) > 1:
        listed = [(one.case, one.played, one.verdict) for one in shown]
        lines.append(f"index:    {write_index(outputs.html, listed, label=team.label)}")
    if outputs.episodes is not None:
        played_all = (one.played for one in shown)
        rows = (
            episode_to_json(one) if isinstance(one, Episode) else governed_to_json(one) for one in played_all
        )
        write_lines(outputs.episodes, rows)
        lines.append(f"episodes: {outputs.episodes}")
    return lines


def end_play(team: Team) -> int:
    """Print what endpoints took; return STOPPED where they stopped the play, else 0."""
    for line in team.describe_usage():
        print(line)
    if team.stop is None:
        return 0
    print(f"stopped: {team.stop}; raise max_cost, with the same replies=FILE", file=sys.stderr)
    return STOPPED


def read_cases(team: Team, files: Sequence[Path]) -> tuple[list[FreeCase], int]:
    """Return the cases that the team can play, and how many were skipped; each of those is named on stderr.

    Raises:
        UserError: there are files, and none of them can be played: the first reason.
    """
    cases, refused = _read_files(team.read_case, files)
    for reason in refused:
        print(f"skipped: {reason}", file=sys.stderr)
    return cases, len(refused)


def _read_files(
    read: Callable[[Path], FreeCase], files: Sequence[Path]
) -> tuple[list[FreeCase], list[UserError]]:
    cases, refused = [], []
    for file in files:
        try:
            cases.append(read(file))
        except UserError as error:
            refused.append(error)
    if refused and not cases:
        raise refused[0]
    return cases, refused


def draw_cases(team: Team, index: int, count: int, company: str | None) -> list[Case]:
    """Return `count` test scenarios from `index` on: any, or those of one company.

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
        reviewer: Reviewer = SimulatedReviewer(score_by_worth, error_rate=ERROR_RATE, least_share=LEAST_SHARE)
        if named == TERMINAL:
            reviewer = TerminalReviewer()
        elif named == WEB:
            reviewer = WebReviewer(services.gate.find_answer)
            print(f"plans wait for people; open them in the browser: emads review {db}", flush=True)
        for cases in turns:
            if reviewer.name == SIMULATED:
                _check_nobody_waits(services, cases, seating.stream, is_named=named is not None)
            # in the browser all cases wait side by side
            concurrency = {TERMINAL: 1, WEB: max(CONCURRENCY, len(cases))}.get(reviewer.name, CONCURRENCY)
            episodes = await play_governed(
                cases, services, seating, reviewer, make_world, rounds=ROUNDS, concurrency=concurrency
            )
            for case, episode in zip(cases, episodes, strict=True):
                record = read_record(case, episode, services, stream=seating.stream)
                played.append((episode, record))
    return played


def _check_nobody_waits(
    services: GovernanceServices, cases: Sequence[Case], stream: str, *, is_named: bool
) -> None:
    """Refuse the simulated reviewer over a case that waits for a person, and unnamed where people rule.

    Raises:
        UserError: the first such case, or no reviewer named in a store in which a person was asked.
    """
    threads = services.gate.list_threads()
    waiting = {thread for thread in threads if services.log.find(thread, "asked")}
    for case in cases:
        if f"{stream}/{case.key}" in waiting:
            raise UserError(f"{case.key} waits for a person; run again with --reviewer terminal or web")
    if waiting and not is_named:
        raise UserError("cases in this store wait for a person; name --reviewer terminal, web or simulated")


def keep_ruling_labels(
    cases: Sequence[PlayableCase],
    records: Sequence[GovernedRecord],
    team: Team,
    seating: Seating,
    store: Path | None,
) -> list[str]:
    """Add the people's rulings on plans to the label file beside the store; return a line where any are new.

    There are labels where a run plays ReconcileGPT: only its drafts can be learnt from.
    """
    player = team.seats.player_of(RECONCILER)
    if store is None or not isinstance(player, RunPlayer):
        return []
    chair = team.runs[player]
    from simulator.engines.embedded.hf_chat import HFChat
    from training.feedback.labels import MAX_NAME, Provenance, add_label, labels_beside, read_labels
    from training.feedback.rows import label_rulings

    assert isinstance(chair.chat, HFChat)
    path = labels_beside(store)
    known = read_labels(path) if path.is_file() else []
    name = chair.config.name[:MAX_NAME]
    provenance = Provenance(run=name, weights=chair.stage, style=chair.style, source="gate")
    new = [
        label
        for case, record in zip(cases, records, strict=True)
        for label in label_rulings(
            record,
            chat=chair.chat,
            role=list_prompt_roles(case, seating.make_game(case), seating.kinds)[RECONCILER],
            provenance=provenance,
            spoken_in=None if chair is team.sole_run else seating.chat,
        )
        if label not in known
    ]
    if not new:
        return []
    add_label(path, *new)
    return [f"labels:   {path} ({len(new)} from rulings of people)"]
