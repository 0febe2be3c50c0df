"""Team diagnostics: what each role adds, which reports decide, which seats do not work or accept everything.

Every probe intervenes on sealed cases: another player, a report taken away or altered, a decision forced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evaluation.probes.probe_setup import ProbeSetup, Team, seats_of, split_teams, with_role, write_report
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from roles.team import RECONCILER, Decision, SpecialistReport
from scenarios.team import TeamScenario, parse_report, parse_vote
from scenarios.team.case import favourite, own_vetoes
from scenarios.team.practices import best_decision
from scenarios.team.texts import open_options
from simulator.records import Episode

MAX_ALTERATIONS = 2  # altered reports that are tried per case and role


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """So many of so many. Example: Count(hits=12, n=40)"""

    hits: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProbe:
    """Probe results of one specialist.

    Example: RoleProbe(role="cto", own_pick=Count(hits=180, n=200), chance=0.34, ...)
    """

    role: str
    own_pick: Count  # reports whose pick is the seat's own best
    chance: float  # what a blind pick would hit
    limits_named: Count  # options under the seat's hard limit that its reports veto
    marginal_value: Interval  # V with all reports - V without this one
    heard: Count  # cases in which an altered report of this role changes the decision
    hearable: Count  # the same for a sound chair on the same reports, by the practice that hears it least
    accepts_broken: Count  # forced decisions under its own hard limit that it accepts
    objects_sound: Count  # forced sound decisions that it objects to


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamProbe:
    """Probe results of one team."""

    reward: Interval
    value: Interval
    agreement_when_wrong: float | None  # of decisions with V = 0
    roles: Mapping[str, RoleProbe]

    def as_dict(self) -> dict[str, Any]:
        """For diagnostics.json."""
        return asdict(self) | {"roles": {role: asdict(probe) for role, probe in self.roles.items()}}


def probe_team(setup: ProbeSetup, team: Team) -> TeamProbe:
    """Return every probe of a team that needs no other team."""
    episodes = setup.play(team, "home")
    reports = [dict(episode.reports) for episode in episodes]
    decisions = setup.decide(team, reports, "all")
    values = setup.values(decisions)
    probes = {
        role: _probe_role(setup, team, role, reports, decisions, values) for role in seats_of(setup.scenarios)
    }
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
    decisions: Sequence[Decision | None],
    values: Sequence[float],
) -> RoleProbe:
    scenarios = setup.scenarios
    without = setup.decide(team, [{**of_case, role: ""} for of_case in reports], f"without/{role}")
    read = [
        parse_report(scenario, of_case[role]) for scenario, of_case in zip(scenarios, reports, strict=True)
    ]
    seats = [scenario.seats[role] for scenario in scenarios]
    named = [
        option in (report.veto if report else ())
        for seat, report in zip(seats, read, strict=True)
        for option in own_vetoes(seat)
    ]
    right = sum(
        report is not None and report.pick == favourite(seat)
        for seat, report in zip(seats, read, strict=True)
    )
    heard, hearable = _probe_hearing(setup, team, role, reports, decisions)
    accepts, objects = _probe_votes(setup, team, role)
    return RoleProbe(
        role=role,
        own_pick=Count(hits=right, n=len(scenarios)),
        chance=sum(1 / len(scenario.options) for scenario in scenarios) / len(scenarios),
        limits_named=Count(hits=sum(named), n=len(named)),
        marginal_value=paired_interval(values, setup.values(without)),
        heard=heard,
        hearable=hearable,
        accepts_broken=accepts,
        objects_sound=objects,
    )


def _probe_hearing(
    setup: ProbeSetup,
    team: Team,
    role: str,
    reports: Sequence[dict[str, str]],
    decisions: Sequence[Decision | None],
) -> tuple[Count, Count]:
    """Cases in which an altered report changes the decision: this chair's, and a sound chair's at least."""
    changed = set[int]()
    sound = {name: set[int]() for scenario in setup.scenarios for name in scenario.conventions.decisions}
    tried = set[int]()
    for attempt in range(MAX_ALTERATIONS):
        altered, places = [], []
        for place, (scenario, of_case) in enumerate(zip(setup.scenarios, reports, strict=True)):
            report = _alter(scenario, role, of_case, decisions[place], attempt)
            if report is not None:
                altered.append({**of_case, role: write_report(report)})
                places.append(place)
        if not places:
            break
        tried |= set(places)
        part = setup.on([setup.scenarios[place] for place in places])
        for place, after, of_case in zip(
            places, part.decide(team, altered, f"altered/{role}/{attempt}"), altered, strict=True
        ):
            if after != decisions[place]:
                changed.add(place)
            for practice, hits in sound.items():
                before = _sound_choice(setup.scenarios[place], reports[place], practice)
                if _sound_choice(setup.scenarios[place], of_case, practice) != before:
                    hits.add(place)
    least = min((len(hits) for hits in sound.values()), default=0)
    return Count(hits=len(changed), n=len(tried)), Count(hits=least, n=len(tried))


def _alter(
    scenario: TeamScenario, role: str, reports: Mapping[str, str], decision: Decision | None, attempt: int
) -> SpecialistReport | None:
    """The role presses for the attempt-th open option that was not decided; None where there is none."""
    read = {name: parse_report(scenario, text) for name, text in reports.items()}
    chosen = decision.option if decision else ""
    own = read[role]
    others = {name: report for name, report in read.items() if name != role}
    still_open = [option for option in open_options(scenario.options, others) if option != chosen]
    still_open = [option for option in still_open if own is None or option not in (own.pick, *own.veto)]
    if attempt >= len(still_open):
        return None
    return SpecialistReport(pick=still_open[attempt], flag=3, veto=list(own.veto) if own else [])


def _sound_choice(scenario: TeamScenario, reports: Mapping[str, str], practice: str) -> Decision:
    read = {name: parse_report(scenario, text) for name, text in reports.items()}
    return best_decision(scenario.options, read, practice, scenario.conventions)


def _probe_votes(setup: ProbeSetup, team: Team, role: str) -> tuple[Count, Count]:
    """Votes on decisions that nobody made: one under the role's own limit, and one that is sound for all."""
    broken, sound = [], []
    for scenario in setup.scenarios:
        vetoes = own_vetoes(scenario.seats[role])
        if vetoes:
            broken.append((scenario, role, Decision(option=vetoes[0], escalate=False)))
        best = scenario.truth["best"]
        if best is not None:
            sound.append((scenario, role, Decision(option=best, escalate=False)))
    accepts = [parse_vote(text) == "accept" for text in setup.vote(team, broken, "broken")]
    objects = [parse_vote(text) == "object" for text in setup.vote(team, sound, "sound")]
    return Count(hits=sum(accepts), n=len(accepts)), Count(hits=sum(objects), n=len(objects))


def _agreement_when_wrong(setup: ProbeSetup, episodes: Sequence[Episode]) -> float | None:
    from scenarios.team import decision_value, parse_decision

    shares = []
    for scenario, episode in zip(setup.scenarios, episodes, strict=True):
        if decision_value(scenario, parse_decision(scenario, episode.decision)) == 0 and episode.votes:
            accepts = [parse_vote(text) == "accept" for text in episode.votes.values()]
            shares.append(sum(accepts) / len(accepts))
    return sum(shares) / len(shares) if shares else None


def swap_matrix(setup: ProbeSetup, teams: Mapping[str, Team]) -> dict[str, dict[str, dict[str, float]]]:
    """Team reward with the specialists of one team (row) under the chair of another (column)."""
    matrix: dict[str, dict[str, dict[str, float]]] = {}
    for row, specialists in teams.items():
        matrix[row] = {}
        for column, chair in teams.items():
            mixed = split_teams(specialists, chair)
            interval = mean_interval(setup.rewards(setup.play(mixed, "swap")))
            matrix[row][column] = asdict(interval)
    return matrix


def replace_roles(
    setup: ProbeSetup, team: Team, substitutes: Mapping[str, Team]
) -> dict[str, dict[str, dict[str, float]]]:
    """substitute -> role -> paired change of the team reward with that one seat taken over."""
    home = setup.rewards(setup.play(team, "home"))
    changes: dict[str, dict[str, dict[str, float]]] = {}
    for name, other in substitutes.items():
        changes[name] = {}
        for role in (*seats_of(setup.scenarios), RECONCILER):
            if role in other:
                played = setup.rewards(setup.play(with_role(team, role, other[role]), "home"))
                changes[name][role] = asdict(paired_interval(played, home))
    return changes
