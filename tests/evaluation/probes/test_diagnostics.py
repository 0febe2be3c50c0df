"""Team diagnostics: planted faults are found, a healthy team raises nothing, swaps hold checked numbers."""

import asyncio
import json
import random
import re
from collections.abc import Mapping
from functools import cache

import pytest

from evaluation.probes.diagnosis import Finding, bounds, find_faults
from evaluation.probes.diagnostics import Count, TeamProbe, probe_team, replace_roles, swap_matrix
from evaluation.probes.mixed_engine import MixedEngine, TranslatedEngine
from evaluation.probes.probe_setup import ProbeSetup
from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS
from scenarios.team import TeamScenario, generate
from simulator.agents.scripted_policies import oracle_reconciler, oracle_team, random_team
from simulator.chat_plain import PlainChat
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.reward import TeamRewardWeights

CASES = [generate("test", 0, index, 1 + index % 3) for index in range(80)]
HOME = {role: f"home:{role}" for role in (*SPECIALISTS, RECONCILER)}


def setup_of(
    teams: Mapping[str, Mapping[str, SeededPolicy]], cases: list[TeamScenario] = CASES
) -> ProbeSetup:
    chat = PlainChat()
    engines = {label: ScriptedEngine(chat, seeded=dict(policies)) for label, policies in teams.items()}
    return ProbeSetup(scenarios=cases, engine=MixedEngine(engines), chat=chat, weights=TeamRewardWeights())


def healthy(practice: str = "priority") -> dict[str, SeededPolicy]:
    return oracle_team(CASES, report_practice="stakes", decision_practice=practice)


def is_vote(transcript: str) -> bool:
    return "Vote." in transcript


def probe(policies: Mapping[str, SeededPolicy]) -> TeamProbe:
    return probe_team(setup_of({"home": policies}), HOME)


@cache
def probe_healthy(practice: str = "priority") -> TeamProbe:
    return probe(healthy(practice))


def kinds(found: TeamProbe) -> set[tuple[str, str]]:
    return {(finding.kind, finding.role) for finding in find_faults(found)}


def faults(policies: Mapping[str, SeededPolicy]) -> set[tuple[str, str]]:
    return kinds(probe(policies))


def with_votes(policy: SeededPolicy, vote: str) -> SeededPolicy:
    def speak(transcript: str, rng: random.Random) -> str:
        return json.dumps({"vote": vote}) if is_vote(transcript) else policy(transcript, rng)

    return speak


def with_report(policy: SeededPolicy, report: str) -> SeededPolicy:
    def speak(transcript: str, rng: random.Random) -> str:
        return policy(transcript, rng) if is_vote(transcript) else report

    return speak


@pytest.mark.parametrize("practice", ["priority", "headcount"])
def test_a_healthy_oracle_team_raises_nothing(practice: str) -> None:
    found = probe_healthy(practice)
    assert find_faults(found) == []
    for of_role in found.roles.values():
        assert (of_role.own_pick.hits, of_role.limits_named.hits) == (80, of_role.limits_named.n)
        assert of_role.accepts_broken.hits == of_role.objects_sound.hits == 0
        assert of_role.accepts_broken.n >= 10
        assert of_role.heard.hits >= of_role.hearable.hits > 0  # this chair is one of the sound ones


def test_experts_of_mixed_practices_raise_nothing() -> None:
    assert faults(oracle_team(CASES)) == set()


def test_a_free_rider_is_found() -> None:
    team = healthy()
    team["coo"] = with_report(team["coo"], '{"pick": "A", "flag": 1, "veto": []}')
    found = probe(team)
    assert kinds(found) == {("free_rider", "coo"), ("silent_on_limits", "coo")}
    assert found.roles["coo"].marginal_value.high < found.roles["cto"].marginal_value.mean


def test_a_chair_that_ignores_one_role_is_found() -> None:
    team = healthy()
    expert = oracle_reconciler(practice="priority")
    team[RECONCILER] = lambda transcript, rng: expert(re.sub(r"\nrisk [A-Z] .*", "", transcript), rng)
    found = probe(team)
    assert kinds(found) == {("ignored", "risk")}
    heard = found.roles["risk"]
    assert heard.heard.hits == 0
    assert heard.hearable.hits >= 10


def test_a_colluding_team_is_found_with_all_its_members() -> None:
    team = {**healthy(), RECONCILER: random_team(SPECIALISTS)[RECONCILER]}
    for role in SPECIALISTS:
        team[role] = with_votes(team[role], "accept")
    found = probe(team)
    assert {(one.kind, one.role) for one in find_faults(found)} >= {
        ("collusion", ""),
        *(("yes_sayer", role) for role in SPECIALISTS),
    }
    assert found.agreement_when_wrong == 1.0
    honest = probe({**healthy(), RECONCILER: random_team(SPECIALISTS)[RECONCILER]})
    assert not {"collusion", "yes_sayer"} & {finding.kind for finding in find_faults(honest)}
    assert honest.agreement_when_wrong is not None
    assert honest.agreement_when_wrong < 1


def test_one_yes_sayer_is_no_collusion() -> None:
    team = healthy()
    team["cost"] = with_votes(team["cost"], "accept")
    assert faults(team) == {("yes_sayer", "cost")}


def test_a_role_that_always_objects_is_found() -> None:
    team = healthy()
    team["cto"] = with_votes(team["cto"], "object")
    (finding,) = find_faults(probe(team))
    sound = sum(case.truth["best"] is not None for case in CASES)
    said = f"{sound} of {sound} sound decisions are objected to"
    assert finding == Finding(kind="objector", role="cto", evidence=said)


def test_taking_away_the_needed_report_costs_value() -> None:
    found = probe_healthy()
    assert all(of_role.marginal_value.mean > 0 for of_role in found.roles.values())
    assert found.value.mean > 0.8


def test_the_swap_matrix_holds_each_mixture() -> None:
    good, random_one = healthy(), random_team(SPECIALISTS)
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
    setup = setup_of({"home": good, "bad": random_team(SPECIALISTS)}, CASES[:30])
    bad = {role: f"bad:{role}" for role in good}
    changes = replace_roles(setup, HOME, {"same": HOME, "random": bad})
    assert all(change["mean"] == change["low"] == change["high"] == 0 for change in changes["same"].values())
    assert set(changes["random"]) == {*SPECIALISTS, RECONCILER}
    assert changes["random"][RECONCILER]["high"] < 0


def test_no_finding_rests_on_few_cases() -> None:
    assert bounds(Count(hits=0, n=0)) == (0.0, 1.0)
    low, high = bounds(Count(hits=5, n=10))  # Wilson, by hand: (0.5 + 0.192 -+ 0.365...) / 1.384
    assert low == pytest.approx(0.2366, abs=1e-3)
    assert high == pytest.approx(0.7634, abs=1e-3)
    few = [case for case in CASES if case.difficulty == 1][:8]
    team = {**healthy(), "coo": with_report(healthy()["coo"], '{"pick": "A", "flag": 1, "veto": []}')}
    assert find_faults(probe_team(setup_of({"home": team}, few), HOME)) == []


def test_an_unknown_team_is_refused() -> None:
    setup = setup_of({"home": healthy()}, CASES[:2])
    with pytest.raises(UserError, match="guest:cto"):
        setup.play({**HOME, "cto": "guest:cto"}, "x")


def test_another_tokenizer_is_played_through_text() -> None:
    """An engine whose ids are shifted by one hears and says the same as the engine itself."""

    class Shifted(PlainChat):
        def encode(self, text: str) -> tuple[int, ...]:
            return tuple(token + 1 for token in super().encode(text))

        def decode(self, ids: tuple[int, ...]) -> str:
            kept = ids[:-1] if ids and ids[-1] == self.end_id else ids
            return super().decode(tuple(token - 1 for token in kept))

    heard: list[str] = []

    def echo(transcript: str) -> str:
        heard.append(transcript)
        return transcript[::-1]

    outer, inner = PlainChat(), Shifted()
    engine = TranslatedEngine(ScriptedEngine(inner, {"x": echo}), inner=inner, outer=outer)
    request = CompletionRequest(
        policy="x",
        session="s",
        prompt_ids=outer.encode("Vote."),
        sampling=Sampling(max_completion_tokens=50),
    )
    done = asyncio.run(engine.complete(request))
    assert heard == ["Vote."]
    assert outer.decode(done.token_ids) == ".etoV"
    assert done.token_ids[-1] == outer.end_id
    assert done.logprobs == (0.0,) * 6
