"""Team diagnostics: the gain from each role, claims that hold, seats that accept everything, faults found.

Every probe plays sealed cases: whole episodes, a report taken away, a decision forced, another player.
"""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.scoring.baselines import play_plan, unplayed_episode
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from evaluation.summary.tables import role_title
from roles.registry import ROLES
from roles.team import NO_OPTION, RECONCILER, Decision, Report
from scenarios.company.knapsack import list_efficient
from scenarios.team import PlanGame, PlayableCase, TeamScenario, decision_value
from scenarios.team.experts import make_offer
from scenarios.team.funding import choose_best, list_all_fundings, list_fundings
from scenarios.team.offers import CheckedReport, is_needed, is_vetoed
from simulator.agents.scripted_policies import ReadTable, list_specialists, reconciler_policy, seat_policy
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import SeededPolicy
from simulator.export.atomic_files import read_document, write_document
from simulator.game import MakeGame
from simulator.graph.runner import MAX_TURNS, play_decisions, play_episodes
from simulator.graph.seating import Seating
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

Team = Mapping[str, str]  # role -> policy of the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedVote:
    """A decision that nobody made, put to the vote of one seat, and the reports that it stands on.

    Example: ForcedVote(scenario=case, role="coo", decision=Decision(option="B", fund=[], escalate=False),
                        reports={})
    """

    scenario: TeamScenario
    role: str
    decision: Decision
    reports: Mapping[str, Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSetup:
    """Sealed cases and who serves the policies. Greedy: what changes is then caused by the probe.

    Example: ProbeSetup(scenarios=cases, engine=engine, chat=chat, weights=weights).play(team, "home")
    """

    scenarios: Sequence[TeamScenario]
    engine: Engine
    chat: Chat
    weights: TeamRewardWeights
    make_game: MakeGame = PlanGame
    max_completion_tokens: int = 1200
    rounds: int = 1

    def play(self, team: Team, label: str) -> list[Episode]:
        """One whole episode per case.

        Raises:
            RuntimeError: an engine failed; what is measured would be of fewer cases.
        """
        return self._play(play_episodes, self.scenarios, team, label, rounds=self.rounds)

    def _play(
        self,
        play: Callable[..., Coroutine[Any, Any, Sequence[Episode]]],
        cases: Sequence[Any],
        team: Team,
        label: str,
        **options: Any,
    ) -> list[Episode]:
        options |= {"concurrency": max(1, len(cases)), "make_game": self.make_game}
        played = play(
            cases, team, self.engine, self.chat, self._sampling, stream=f"diagnose/{label}", **options
        )
        episodes = list(asyncio.run(played))
        errors = [episode.error for episode in episodes if episode.error is not None]
        if errors:
            raise RuntimeError(f"{len(errors)} of {len(episodes)} episodes failed, the first: {errors[0]}")
        return episodes

    def rewards(self, episodes: Sequence[Episode]) -> list[float]:
        """Team reward of each case's episode."""
        pairs = zip(self.scenarios, episodes, strict=True)
        return [score_episode(scenario, episode, self.weights).reward for scenario, episode in pairs]

    def decide(self, team: Team, reports: Sequence[Mapping[str, str]], label: str) -> list[ReadEpisode]:
        """ReconcileGPT's decision on given reports, one set per case; "" stands for no report."""
        pairs = zip(self.scenarios, reports, strict=True)
        sets = [(scenario, unplayed_episode(scenario, of_case)) for scenario, of_case in pairs]
        episodes = self._play(
            play_decisions, sets, team, label, num_decisions=1, with_votes=False, with_replies=False
        )
        return list(map(read_episode, self.scenarios, episodes))

    def values(self, decided: Sequence[ReadEpisode]) -> list[float]:
        """V of one decision per case."""
        pairs = zip(self.scenarios, decided, strict=True)
        return [decision_value(scenario, read.table, read.decision) for scenario, read in pairs]

    def vote(self, team: Team, asked: Sequence[ForcedVote], label: str) -> list[str | None]:
        """Votes on decisions that nobody made, after the seat's own report; None for one that is none."""

        async def ask(place: int, one: ForcedVote) -> str | None:
            game = self.make_game(one.scenario)
            seating = Seating(
                team=team,
                engine=self.engine,
                chat=self.chat,
                sampling=self._sampling,
                stream="",
                max_turns=MAX_TURNS,
                roles=ROLES,
                make_game=self.make_game,
            )
            session = f"diagnose/{label}/{place}/{one.scenario.key}"
            agent = seating.make_agents(one.scenario, game, session)[one.role]
            brief = seating.open_case(one.scenario, game, rounds=1)["briefs"][one.role]
            await agent.answer(brief)
            reports = {
                seat: game.read_report(seat, report.model_dump_json()) for seat, report in one.reports.items()
            }
            decision = one.decision.model_dump(mode="json")
            text = await agent.answer(game.write_vote_brief(decision, one.role, reports))
            agent.trajectory()  # gives the session back
            vote = game.read_vote(text)
            return None if vote is None else str(vote["vote"])

        async def ask_all() -> list[str | None]:
            return list(await asyncio.gather(*(ask(place, one) for place, one in enumerate(asked))))

        return asyncio.run(ask_all())

    @property
    def _sampling(self) -> Sampling:
        return Sampling(temperature=0.0, max_completion_tokens=self.max_completion_tokens)


_OTHER_VOTE = {"accept": "object", "object": "accept"}


def adversary_team(scenarios: Sequence[PlayableCase]) -> dict[str, SeededPolicy]:
    """An adversary for every seat of these scenarios and the reconciler's, each under its role's name."""
    seats = {role: adversary_specialist(scenarios, role) for role in list_specialists(scenarios)}
    return {**seats, RECONCILER: reconciler_policy(decide_worst)}


def adversary_specialist(scenarios: Sequence[PlayableCase], role: str) -> SeededPolicy:
    """Offers its dearest parts at their true price, names no limit, and votes against the book."""

    def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
        return gild_report(case, role).model_dump_json()

    honest = seat_policy(scenarios, role, report)

    def speak(transcript: str, rng: random.Random) -> str:
        text = honest(transcript, rng)
        answer = json.loads(text)
        return json.dumps({"vote": _OTHER_VOTE[answer["vote"]]}) if "vote" in answer else text

    return speak


def gild_report(case: PlayableCase, seat: str) -> Report:
    """On every option the dearest part that keeps the limit; not a word of the limit."""
    offers = []
    for option in case.options:
        keeping = [part for part in case.parts_of(seat, option) or () if part.keeps_limit and part.choice]
        if keeping:
            offers.append(make_offer(max(keeping, key=lambda part: (part.cost, -part.worth))))
    return Report(offers=offers, needs=[], veto=[])


def decide_worst(table: ReadTable, _rng: random.Random) -> Decision:
    """The plan of the least worth that can be run by the reports; escalates where there is none."""
    plans = list_all_fundings(table.public, table.reports)
    if not plans:
        return Decision(option=NO_OPTION, fund=[], escalate=True)
    worst = min(plans, key=lambda plan: plan.worth)
    return Decision(option=worst.option, fund=[offer.label for offer in worst.offers], escalate=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """So many of so many. Example: Count(hits=12, n=40)"""

    hits: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProbe:
    """Probe results of one specialist.

    Example: RoleProbe(role="cto", offered=Count(hits=180, n=200), efficient=Count(hits=175, n=180), ...)
    """

    role: str
    offered: Count  # options on which a part gains something: those on which an offer of it stands
    efficient: Count  # offers that stand: those that no cheaper part of the seat beats
    false_claims: Count  # claims made: those that are struck out
    limits_named: Count  # options that need a part of it or break its limit anyway: those that it names so
    marginal_value: Interval  # V with all reports - V without this one
    used: Count  # decisions on whose option the best funding pays this seat: those that pay it
    accepts_broken: Count  # forced decisions that break its own hard limit: those that it accepts
    objects_sound: Count  # forced sound decisions: those that it objects to


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamProbe:
    """Probe results of one team."""

    reward: Interval
    value: Interval
    agreement_when_wrong: float | None  # of decisions with V = 0
    roles: dict[str, RoleProbe]


def probe_team(setup: ProbeSetup, team: Team) -> TeamProbe:
    """Return every probe of a team that needs no other team."""
    episodes = setup.play(team, "home")
    reports = [dict(episode.reports) for episode in episodes]
    decided = setup.decide(team, reports, "all")
    values = setup.values(decided)
    roles = list_specialists(setup.scenarios)
    probes = {role: _probe_role(setup, team, role, reports, decided, values) for role in roles}
    return TeamProbe(
        reward=mean_interval(setup.rewards(episodes)),
        value=mean_interval(values),
        agreement_when_wrong=_agreement_when_wrong(setup, episodes),
        roles=probes,
    )


def _probe_role(
    setup: ProbeSetup,
    team: Team,
    role: str,
    reports: Sequence[dict[str, str]],
    decided: Sequence[ReadEpisode],
    values: Sequence[float],
) -> RoleProbe:
    without = setup.decide(team, [{**of_case, role: ""} for of_case in reports], f"without/{role}")
    heard = [(scenario, read.table[role]) for scenario, read in zip(setup.scenarios, decided, strict=True)]
    accepts, objects = _probe_votes(setup, team, role)
    return RoleProbe(
        role=role,
        offered=_sum_up(_list_offered(scenario, role, report) for scenario, report in heard),
        efficient=_sum_up(_list_efficient(scenario, role, report) for scenario, report in heard),
        false_claims=_sum_up(_list_struck(report) for _, report in heard),
        limits_named=_sum_up(_list_named(scenario, role, report) for scenario, report in heard),
        marginal_value=paired_interval(values, setup.values(without)),
        used=_sum_up(_list_used(setup.scenarios[place], role, read) for place, read in enumerate(decided)),
        accepts_broken=accepts,
        objects_sound=objects,
    )


def _sum_up(by_case: Iterable[Sequence[bool]]) -> Count:
    hits = [hit for of_case in by_case for hit in of_case]
    return Count(hits=sum(hits), n=len(hits))


def _list_offered(scenario: TeamScenario, role: str, report: CheckedReport | None) -> list[bool]:
    """Per option on which the seat can gain something: whether an offer stands."""
    offered = {offer.option for offer in report.offers} if report else set()
    frontiers = {option: list_efficient(scenario.parts_of(role, option)) for option in scenario.options}
    return [option in offered for option, frontier in frontiers.items() if frontier and frontier[-1].choice]


def _list_efficient(scenario: TeamScenario, role: str, report: CheckedReport | None) -> list[bool]:
    """Per offer that stands: whether no cheaper part is worth as much."""
    return [
        offer.choice in [part.choice for part in list_efficient(scenario.parts_of(role, offer.option))]
        for offer in (report.offers if report else ())
    ]


def _list_struck(report: CheckedReport | None) -> list[bool]:
    """Per claim: whether it was struck out."""
    if report is None:
        return []
    standing = len(report.offers) + len(report.needs) + len(report.veto)
    return [True] * len(report.false_claims) + [False] * standing


def _list_named(scenario: TeamScenario, role: str, report: CheckedReport | None) -> list[bool]:
    """Per option that hangs on this seat's limit: whether the report says so."""
    needs, veto = (report.needs, report.veto) if report else ((), ())
    named = [option in needs for option in scenario.options if is_needed(scenario, role, option)]
    return named + [option in veto for option in scenario.options if is_vetoed(scenario, role, option)]


def _list_used(scenario: TeamScenario, role: str, read: ReadEpisode) -> list[bool]:
    """Return where the best funding of the decided option pays this seat: whether the decision does."""
    if read.plan is None:
        return []
    best = choose_best(list_fundings(scenario.public, read.table, read.plan.option))
    if best is None or role not in {offer.seat for offer in best.offers}:
        return []
    return [role in read.plan.funded]


def _probe_votes(setup: ProbeSetup, team: Team, role: str) -> tuple[Count, Count]:
    """Votes on decisions that nobody made: one that breaks the own limit, one that is sound for all."""
    broken, sound = [], []
    for scenario in setup.scenarios:
        breaking = [
            option
            for option in scenario.options
            if is_needed(scenario, role, option) or is_vetoed(scenario, role, option)
        ]
        if breaking:
            bare = Decision(option=breaking[0], fund=[], escalate=False)
            broken.append(ForcedVote(scenario=scenario, role=role, decision=bare, reports={}))
        if scenario.optimum is not None:
            play = play_plan(scenario, scenario.optimum.plan)
            sound.append(
                ForcedVote(scenario=scenario, role=role, decision=play.decision, reports=play.reports)
            )
    accepts = [vote == "accept" for vote in setup.vote(team, broken, "broken")]
    objects = [vote == "object" for vote in setup.vote(team, sound, "sound")]
    return Count(hits=sum(accepts), n=len(accepts)), Count(hits=sum(objects), n=len(objects))


def _agreement_when_wrong(setup: ProbeSetup, episodes: Sequence[Episode]) -> float | None:
    shares = []
    for scenario, episode in zip(setup.scenarios, episodes, strict=True):
        read = read_episode(scenario, episode)
        if episode.votes and decision_value(scenario, read.table, read.decision) == 0:
            votes = [read.votes[seat] for seat in episode.votes]
            shares.append(votes.count("accept") / len(votes))
    return sum(shares) / len(shares) if shares else None


def swap_matrix(setup: ProbeSetup, teams: Mapping[str, Team]) -> dict[str, dict[str, dict[str, float]]]:
    """Team reward with the specialists of one team (row) under the chair of another (column)."""

    def measure(specialists: Team, chair: Team) -> dict[str, float]:
        mixed = {**specialists, RECONCILER: chair[RECONCILER]}
        return asdict(mean_interval(setup.rewards(setup.play(mixed, "swap"))))

    return {
        row: {column: measure(specialists, chair) for column, chair in teams.items()}
        for row, specialists in teams.items()
    }


def replace_roles(
    setup: ProbeSetup, team: Team, substitutes: Mapping[str, Team]
) -> dict[str, dict[str, dict[str, float]]]:
    """substitute -> role -> paired change of the team reward with that one seat taken over."""
    home = setup.rewards(setup.play(team, "home"))
    changes: dict[str, dict[str, dict[str, float]]] = {}
    for name, other in substitutes.items():
        changes[name] = {}
        for role in (*list_specialists(setup.scenarios), RECONCILER):
            if role in other:
                played = setup.rewards(setup.play({**team, role: other[role]}, "home"))
                changes[name][role] = asdict(paired_interval(played, home))
    return changes


FREE_RIDER_SHARE = 0.25  # of the options on which it could gain something; fewer offers are no work
MIN_CASES = 10  # occasions from which a check says anything
# by check: field of a role's probe, share, whether a sound seat has at least that (else at most), the finding
CHECKS = {
    "free_rider": ("offered", 0.75, True, "offers stand on {} options on which it could gain something"),
    "false_claims": ("false_claims", 0.1, False, "{} claims are struck out as false"),
    "silent_on_limits": ("limits_named", 0.25, True, "{} options that hang on its hard limit are named"),
    "ignored": ("used", 0.25, True, "{} decisions that should pay its part do so"),
    "yes_sayer": ("accepts_broken", 0.25, False, "{} decisions under its own hard limit are accepted"),
    "objector": ("objects_sound", 0.25, False, "{} sound decisions are objected to"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a team.

    Example: Finding(kind="free_rider", role="cto", evidence="offers on 31 of 200 options, ...")
    """

    kind: str  # a key of CHECKS, hoarder, collusion
    role: str  # "" for the whole team
    evidence: str


def find_faults(probe: TeamProbe) -> list[Finding]:
    """Return all findings, role by role, then of the team."""
    findings = [finding for role in probe.roles.values() for finding in _check_role(role)]
    yes_sayers = [finding.role for finding in findings if finding.kind == "yes_sayer"]
    if len(yes_sayers) * 2 > len(probe.roles):
        names = ", ".join(role_title(role) for role in yes_sayers)
        wrong = probe.agreement_when_wrong
        seen = "" if wrong is None else f"; worthless decisions find {100 * wrong:.0f} % agreement"
        findings.append(
            Finding(kind="collusion", role="", evidence=f"{names} accept what breaks their own limits{seen}")
        )
    return findings


def _check_role(probe: RoleProbe) -> Iterator[Finding]:
    """Yield each fault whose whole interval lies beyond its limit, on enough occasions."""
    for kind, (field, limit, is_least, evidence) in CHECKS.items():
        count: Count = getattr(probe, field)
        low, high = bounds(count)
        if count.n < MIN_CASES or (high >= limit if is_least else low <= limit):
            continue
        is_hoarder = kind == "free_rider" and high >= FREE_RIDER_SHARE  # offers some, and leaves out much
        said = evidence.format(f"{count.hits} of {count.n}")
        yield Finding(kind="hoarder" if is_hoarder else kind, role=probe.role, evidence=said)


def bounds(count: Count) -> tuple[float, float]:
    """95 % interval of a rate (Wilson); (0, 1) where nothing was counted."""
    if count.n == 0:
        return 0.0, 1.0
    from scipy import stats  # 1 s, which refusals need not wait for

    found = stats.binomtest(count.hits, count.n).proportion_ci(confidence_level=0.95, method="wilson")
    return float(found.low), float(found.high)


DIAGNOSTICS_FILE = "diagnostics.json"


def describe_diagnostics(
    stage: str, probe: TeamProbe, swaps: Mapping[str, Any], substitutes: Mapping[str, Any], num_cases: int
) -> dict[str, Any]:
    """Everything that one diagnosis found, as JSON values."""
    return {
        "stage": stage,
        "n": num_cases,
        "probe": asdict(probe),
        "findings": [asdict(finding) for finding in find_faults(probe)],
        "swaps": swaps,
        "substitutes": substitutes,
    }


def write_diagnostics(run_path: Path, diagnostics: Mapping[str, Any]) -> Path:
    """Write diagnostics.json into the run folder, all or nothing."""
    return write_document(run_path / DIAGNOSTICS_FILE, diagnostics)


def read_diagnostics(run_path: Path) -> dict[str, Any]:
    """Return what `write_diagnostics` stored; empty where nothing is."""
    return read_document(run_path / DIAGNOSTICS_FILE, f"run `emads diagnose {run_path}` again")
