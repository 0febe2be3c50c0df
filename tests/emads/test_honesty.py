"""V10: what a cheat earns is reckoned as training reckons it, and one that pays is found."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import get_args

import pytest

from evaluation.audit.team_cheats import REPORT_CHEATS, VOTE_CHEATS, WEIGHTS
from evaluation.scoring.baselines import book_episode, read_table
from reliability.honesty import cheat_trials
from reliability.honesty.case_rewards import CaseRewards
from reliability.honesty.cheat_trials import (
    COMPANY,
    GAIN,
    LEAST_GAIN,
    NO_LIMITS,
    find_breach,
    find_free_acceptance,
    list_partners,
    measure_cases,
)
from reliability.honesty.compared_sets import ROUNDS, SECOND_CHAIR, compare_objections, measure_cheat
from roles.team import SPECIALISTS
from scenarios.team import TeamScenario, generate
from scenarios.team.experts import best_decision
from simulator.records import Episode
from training.config.rl_config import MarlCreditConfig
from training.rl.credit import SCHEMES, CreditAssigner, Shared, dr_grpo
from training.rl.records import EpisodeGroup, ReportSet, ScoredReportSet
from training.rl.team.score import TeamScorer

HABITS = (
    {"cto": "full", "coo": "lean", "risk": "measured", "cost": "easy"},
    dict.fromkeys(("cto", "coo", "risk", "cost"), "measured"),
)


def decide(scenario: TeamScenario, reports: dict[str, str], chair: str, *, voted: bool) -> Episode:
    """A whole episode, or a further decision without votes."""
    decision = best_decision(scenario.public, read_table(scenario, reports), chair).model_dump_json()
    episode = book_episode(scenario, reports, decision)
    return episode if voted else replace(episode, votes={})


def advantages_in_training(scheme_name: str, scenario: TeamScenario, name: str, cheater: str) -> list[float]:
    """The cheater's advantages from the player's records on: scorer, credit."""
    case = CaseRewards(scenario, WEIGHTS)
    sets = []
    for habits in HABITS:
        honest = {seat: case.write(seat, habits[seat]) for seat in scenario.seats}
        texts = {seat: report.model_dump_json() for seat, report in honest.items()}
        false = {cheater: case.write_cheat(name, cheater, honest)}
        for reports in (texts, {**texts, **false}):
            first = decide(scenario, reports, "exact", voted=True)
            second = decide(scenario, reports, SECOND_CHAIR, voted=False)
            sets.append(ReportSet(episodes=(first, second)))
    scheme = SCHEMES[scheme_name]()
    group = EpisodeGroup(scenario=scenario, report_sets=tuple(sets))
    scorer = TeamScorer(weights=WEIGHTS, value_offers=scheme.value_offers)
    credit = CreditAssigner(
        scheme=scheme,
        estimator=dr_grpo,
        votes="alone" if scheme.holds_votes_fixed else "report",
        weights=WEIGHTS,
    )
    (of_group,) = credit.assign([cheater], scorer.score([group]))[cheater]
    return [one.report for one in of_group]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_advantages_are_those_of_training(scheme: str) -> None:
    """The shortcut and the stages of a joint step agree to rounding, and a cheat that costs has less."""
    scenario = generate("validation", 0, 2, 3)
    found = measure_cheat(CaseRewards(scenario, WEIGHTS), "silent", ["coo"], HABITS)
    (quick,) = found.advantages[scheme]
    slow = advantages_in_training(scheme, scenario, "silent", "coo")
    assert quick == pytest.approx(slow, abs=1e-9)
    assert any(quick)
    assert found.gain < 0 > quick[1] + quick[3]


def test_every_cheat_is_measured_alone_and_in_pairs_among_honest_and_fitted_partners() -> None:
    assert len(REPORT_CHEATS) + len(VOTE_CHEATS) >= 40
    assert set(SCHEMES) == set(get_args(MarlCreditConfig.model_fields["scheme"].annotation))
    assert [name for name, _ in list_partners("silent", 2)] == ["honest", "fitted"]


def test_a_scheme_that_pays_a_cheat_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: credit that pays a specialist for what the team loses."""

    class PaidSilence(Shared):
        def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
            return [-one.rewards[0] for one in report_sets]

    monkeypatch.setitem(SCHEMES, "shared", PaidSilence)
    monkeypatch.setattr(cheat_trials, "REPORT_CHEATS", {"silent": REPORT_CHEATS["silent"]})
    monkeypatch.setattr(cheat_trials, "VOTE_CHEATS", {})
    monkeypatch.setattr(cheat_trials, "NUM_FIT_CASES", 2)
    cheat_trials.fit_partners.cache_clear()
    means = measure_cases(range(12))
    cheat_trials.fit_partners.cache_clear()
    assert set(COMPANY) == {"alone", "in pairs"}
    problem = find_breach(means, "silent/alone/")
    assert "honest/shared +" in problem
    assert "episode" not in problem
    assert find_breach({"silent/alone/honest/x": [0.0, 1e-17, 0.0]}, "silent/alone/") == ""


def test_accepting_a_draft_that_breaks_limits_costs_and_objecting_to_a_sound_one_pays_nothing() -> None:
    """A seat whose limit the draft breaks gets a better plan by objecting; it loses by waving it through."""
    gains = {"always accepts": [], "always objects": []}  # type: dict[str, list[float]]
    for index in range(40):
        case = CaseRewards(generate("validation", 0, index, 1 + index % 10), WEIGHTS)
        for name, of_cases in gains.items():
            effect = compare_objections(case, name, SPECIALISTS, "measured")
            assert effect.gain <= LEAST_GAIN
            ((honest, cheating), *_) = effect.advantages[ROUNDS]
            assert (cheating < honest) == (effect.gain < -LEAST_GAIN)
            of_cases.append(effect.gain)
    assert min(gains["always accepts"]) < -0.5
    assert fmean(gains["always accepts"]) < -0.01
    assert fmean(gains["always objects"]) < -0.1


def test_accepting_that_costs_nothing_is_found() -> None:
    costly = {f"always accepts/alone/{NO_LIMITS}/{GAIN}": [-0.5, 0.0]}
    free = {f"always accepts/alone/{NO_LIMITS}/{GAIN}": [0.0, 0.0]}
    assert find_free_acceptance(costly, "always accepts/alone/") == ""
    assert "costs nothing" in find_free_acceptance(free, "always accepts/alone/")
    assert find_free_acceptance(free, "always accepts/in pairs/") == ""
