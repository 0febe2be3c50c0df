"""Team diagnostics: planted faults are found, a healthy team raises nothing, swaps hold checked numbers."""

import json
import random
from collections.abc import Callable, Mapping
from functools import cache, partial

import pytest
from fast_loop import slow_except

from evaluation.probes.diagnostics import (
    Count,
    Finding,
    ProbeSetup,
    TeamProbe,
    adversary_team,
    bounds,
    find_faults,
    probe_team,
    replace_roles,
    swap_matrix,
)
from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS, TEAM_ROLES, Decision, Report
from scenarios.team import PlanGame, PlayableCase, TeamScenario, generate
from scenarios.team.experts import best_decision, best_report
from simulator.agents.scripted_policies import (
    ReadTable,
    baseline_team,
    oracle_team,
    reconciler_policy,
    seat_policy,
)
from simulator.chat import MessageChat, PlainChat
from simulator.engines.routed import RoutedEngine, route_teams
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.reward import TeamRewardWeights

CASES = [generate("test", 0, index, 7) for index in range(32)]  # many options hang on a limit
HOME = {role: f"home:{role}" for role in (*SPECIALISTS, RECONCILER)}


def setup_of(
    teams: Mapping[str, Mapping[str, SeededPolicy]], cases: list[TeamScenario] = CASES
) -> ProbeSetup:
    chat = PlainChat()
    seated = {label: (ScriptedEngine(chat, seeded=dict(policies)), chat) for label, policies in teams.items()}
    return ProbeSetup(
        scenarios=cases,
        engine=RoutedEngine(route_teams(seated, TEAM_ROLES)),
        chat=MessageChat(),
        weights=TeamRewardWeights(),
        make_game=partial(PlanGame, style="short"),
    )


def healthy(funding: str = "exact") -> dict[str, SeededPolicy]:
    return oracle_team(CASES, report_habit="measured", funding_habit=funding)


def random_ones() -> dict[str, SeededPolicy]:
    return baseline_team(CASES, "random")


def is_vote(transcript: str) -> bool:
    return "Vote." in transcript


def probe(policies: Mapping[str, SeededPolicy]) -> TeamProbe:
    return probe_team(setup_of({"home": policies}), HOME)


@cache
def probe_healthy(funding: str = "exact") -> TeamProbe:
    return probe(healthy(funding))


def kinds(found: TeamProbe) -> set[tuple[str, str]]:
    return {(finding.kind, finding.role) for finding in find_faults(found)}


def faults(policies: Mapping[str, SeededPolicy]) -> set[tuple[str, str]]:
    return kinds(probe(policies))


def with_votes(policy: SeededPolicy, vote: str) -> SeededPolicy:
    def speak(transcript: str, rng: random.Random) -> str:
        return json.dumps({"vote": vote}) if is_vote(transcript) else policy(transcript, rng)

    return speak


def with_report(role: str, change: Callable[[Report], Report]) -> SeededPolicy:
    """The expert of the seat whose report is changed."""

    def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
        return change(best_report(case, role, "measured")).model_dump_json()

    return seat_policy(CASES, role, report)


def keep_offers(*options: str) -> Callable[[Report], Report]:
    return lambda report: report.model_copy(
        update={"offers": [offer for offer in report.offers if offer.option in options]}
    )


def flatter(report: Report) -> Report:
    offers = [offer.model_copy(update={"worth": offer.worth + 1}) for offer in report.offers]
    return report.model_copy(update={"offers": offers})


def be_silent(report: Report) -> Report:
    return report.model_copy(update={"needs": [], "veto": []})


def fund_all_but(role: str) -> SeededPolicy:
    """A chair that decides by the book and then leaves one seat out."""

    def decide(table: ReadTable, rng: random.Random) -> Decision:
        decision = best_decision(table.public, table.reports, "exact")
        return decision.model_copy(update={"fund": [label for label in decision.fund if label != role]})

    return reconciler_policy(decide)


@pytest.mark.parametrize("funding", slow_except(["exact", "return"], "exact"))
def test_a_healthy_oracle_team_raises_nothing(funding: str) -> None:
    found = probe_healthy(funding)
    assert find_faults(found) == []
    for of_role in found.roles.values():
        assert (of_role.offered.hits, of_role.efficient.hits) == (of_role.offered.n, of_role.efficient.n)
        assert of_role.limits_named.hits == of_role.limits_named.n >= 10
        assert of_role.false_claims.hits == of_role.accepts_broken.hits == of_role.objects_sound.hits == 0
        assert of_role.accepts_broken.n >= 10
        assert of_role.used.hits >= 10
    if funding == "exact":
        assert all(of_role.used.hits == of_role.used.n for of_role in found.roles.values())


@pytest.mark.slow
def test_experts_of_mixed_habits_raise_nothing() -> None:
    assert faults(oracle_team(CASES)) == set()


def test_a_free_rider_is_found() -> None:
    found = probe({**healthy(), "coo": with_report("coo", keep_offers())})
    assert ("free_rider", "coo") in kinds(found)
    assert {role for _, role in kinds(found)} == {"coo"}
    assert found.roles["coo"].marginal_value.high < found.roles["cto"].marginal_value.mean


@pytest.mark.slow
def test_a_hoarder_is_found() -> None:
    assert faults({**healthy(), "risk": with_report("risk", keep_offers("A"))}) == {("hoarder", "risk")}


@pytest.mark.slow
def test_false_figures_are_found() -> None:
    found = probe({**healthy(), "cost": with_report("cost", flatter)})
    assert {("false_claims", "cost"), ("free_rider", "cost")} <= kinds(found)
    assert found.roles["cost"].efficient.n == 0


@pytest.mark.slow
def test_a_seat_that_conceals_its_limits_is_found() -> None:
    assert faults({**healthy(), "cto": with_report("cto", be_silent)}) == {("silent_on_limits", "cto")}


@pytest.mark.slow
def test_a_chair_that_ignores_one_seat_is_found() -> None:
    found = probe({**healthy(), RECONCILER: fund_all_but("risk")})
    assert kinds(found) == {("ignored", "risk")}
    assert found.roles["risk"].used.hits == 0


@pytest.mark.slow
def test_a_colluding_team_is_found_with_all_its_members() -> None:
    careless = {**healthy(), RECONCILER: reconciler_policy(_fund_nothing)}
    for role in SPECIALISTS:
        careless[role] = with_votes(careless[role], "accept")
    found = probe(careless)
    assert {(one.kind, one.role) for one in find_faults(found)} >= {
        ("collusion", ""),
        *(("yes_sayer", role) for role in SPECIALISTS),
    }
    assert found.agreement_when_wrong == 1.0
    honest = probe({**healthy(), RECONCILER: reconciler_policy(_fund_nothing)})
    assert not {"collusion", "yes_sayer"} & {finding.kind for finding in find_faults(honest)}
    assert honest.agreement_when_wrong is not None
    assert honest.agreement_when_wrong < 1


def _fund_nothing(table: ReadTable, rng: random.Random) -> Decision:
    base = table.public.base
    return Decision(option=max(base, key=base.__getitem__), fund=[], escalate=False)


@pytest.mark.slow
def test_one_yes_sayer_is_no_collusion() -> None:
    team = healthy()
    team["cost"] = with_votes(team["cost"], "accept")
    assert faults(team) == {("yes_sayer", "cost")}


@pytest.mark.slow
def test_a_role_that_always_objects_is_found() -> None:
    team = healthy()
    team["cto"] = with_votes(team["cto"], "object")
    (finding,) = find_faults(probe(team))
    sound = sum(case.optimum is not None for case in CASES)
    said = f"{sound} of {sound} sound decisions are objected to"
    assert finding == Finding(kind="objector", role="cto", evidence=said)


def test_taking_away_a_report_costs_value() -> None:
    found = probe_healthy()
    assert all(of_role.marginal_value.mean > 0 for of_role in found.roles.values())
    assert found.value.mean > 0.6


def test_the_swap_matrix_holds_each_mixture() -> None:
    good, random_one = healthy(), random_ones()
    setup = setup_of({"good": good, "random": random_one}, CASES[:30])
    teams = {label: {role: f"{label}:{role}" for role in good} for label in ("good", "random")}
    matrix = swap_matrix(setup, teams)
    by_hand = setup.rewards(setup.play({**teams["good"], RECONCILER: teams["random"][RECONCILER]}, "swap"))
    assert matrix["good"]["random"]["mean"] == pytest.approx(sum(by_hand) / 30)
    assert matrix["good"]["good"]["mean"] > max(
        matrix["good"]["random"]["mean"], matrix["random"]["good"]["mean"], matrix["random"]["random"]["mean"]
    )


def test_a_hostile_team_mate_costs_reward_and_the_same_one_nothing() -> None:
    good = healthy()
    setup = setup_of({"home": good, "bad": adversary_team(CASES)}, CASES[:30])
    bad = {role: f"bad:{role}" for role in good}
    changes = replace_roles(setup, HOME, {"same": HOME, "hostile": bad})
    assert all(change["mean"] == change["low"] == change["high"] == 0 for change in changes["same"].values())
    assert set(changes["hostile"]) == {*SPECIALISTS, RECONCILER}
    assert changes["hostile"][RECONCILER]["high"] < 0


def test_no_finding_rests_on_few_cases() -> None:
    assert bounds(Count(hits=0, n=0)) == (0.0, 1.0)
    low, high = bounds(Count(hits=5, n=10))  # Wilson, by hand: (0.5 + 0.192 -+ 0.365...) / 1.384
    assert low == pytest.approx(0.2366, abs=1e-3)
    assert high == pytest.approx(0.7634, abs=1e-3)
    few = CASES[:8]
    team = {**healthy(), "coo": with_votes(healthy()["coo"], "accept")}
    assert find_faults(probe_team(setup_of({"home": team}, few), HOME)) == []


def test_an_unknown_team_is_refused() -> None:
    setup = setup_of({"home": healthy()}, CASES[:2])
    with pytest.raises(UserError, match="guest:cto"):
        setup.play({**HOME, "cto": "guest:cto"}, "x")
