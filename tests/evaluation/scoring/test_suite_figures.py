"""Figures of table suites against episodes scored by hand."""

import json

import pytest

from evaluation.scoring.external_tasks import (
    AGREED,
    ALONE,
    BEFORE,
    REGRET,
    SOLVED,
    open_table_suite,
    score_hidden_profile,
    score_negotiation,
    sum_up_suite,
)
from evaluation.scoring.outcomes import SuiteOutcome
from roles.team import SPECIALISTS
from scenarios.suites import HiddenProfileTask, deal_facts, draw_negotiation, write_deal
from simulator.records import Episode

ACCEPT, OBJECT = '{"vote": "accept"}', '{"vote": "object"}'


def make_episode(key: str, reports: dict[str, str], decision: str, votes: dict[str, str]) -> Episode:
    return Episode(
        scenario_key=key,
        index_in_group=0,
        trajectories={},
        reports=reports,
        decision=decision,
        votes=votes,
    )


def test_hidden_profile_figures() -> None:
    case = deal_facts(
        HiddenProfileTask(
            id=1,
            name="hall",
            description="Choose.",
            shared_information=[],
            hidden_information=["a", "b", "c", "d"],
            possible_answers=["North", "Pier"],
            correct_answer="Pier",
        )
    )
    say = {"North": '{"answer": "North"}', "Pier": '{"answer": "Pier"}'}
    vote = {name: json.dumps({"vote": "accept", "answer": name}) for name in say}
    episode = make_episode(
        case.key,
        dict(zip(SPECIALISTS, [say["North"], say["Pier"], say["Pier"], "?"], strict=True)),
        say["North"],
        dict(zip(SPECIALISTS, [vote["Pier"], vote["Pier"], vote["Pier"], vote["North"]], strict=True)),
    )
    assert score_hidden_profile(case, episode, say["Pier"]) == {
        ALONE: 1.0,
        BEFORE: 0.0,  # 2 of 4 is no majority
        SOLVED: 1.0,
        "draft of ReconcileGPT": 0.0,
        "members right before": 0.5,
        "members right after": 0.75,
        "answers read": pytest.approx(8 / 9),
    }


def test_negotiation_figures() -> None:
    case = draw_negotiation(0, 0, 4)
    surpluses = {deal: case.surplus(deal) for deal in case.deals()}
    good = min((one for one in surpluses if surpluses[one] is not None), key=lambda one: surpluses[one] or 0)
    best = max((one for one in surpluses if surpluses[one] is not None), key=lambda one: surpluses[one] or 0)
    bad = next(one for one in surpluses if surpluses[one] is None)
    reports = dict.fromkeys(SPECIALISTS, write_deal(best))
    all_accept = dict.fromkeys(SPECIALISTS, ACCEPT)

    def score(decision: str, votes: dict[str, str]) -> dict[str, float]:
        return score_negotiation(case, make_episode(case.key, reports, decision, votes))

    assert score(write_deal(best), all_accept) == {
        AGREED: 1.0,
        REGRET: 0.0,
        "answers read": 1.0,
        "accepted below own least total": 0.0,
        "not accepted although enough": 0.0,
    }
    worst = surpluses[good]
    assert worst is not None
    assert score(write_deal(good), all_accept)[REGRET] == pytest.approx(1 - worst / case.best)
    objected = score(write_deal(best), {**all_accept, "cto": OBJECT})
    assert (objected[AGREED], objected[REGRET], objected["not accepted although enough"]) == (0, 1, 0.25)
    below = sum(case.points(seat, bad) < case.least(seat) for seat in SPECIALISTS)
    broken = score(write_deal(bad), all_accept)  # it is agreed and yet worth nothing
    assert (broken[AGREED], broken[REGRET]) == (1, 1)
    assert broken["accepted below own least total"] == below / 4 > 0
    unread = score("we agree", all_accept)
    assert (unread[AGREED], unread[REGRET]) == (0, 1)
    assert unread["answers read"] == pytest.approx(8 / 9)
    assert "accepted below own least total" not in unread


def test_sums_with_paired_differences_and_bands() -> None:
    suite = open_table_suite("negotiation", file=None, count=2, seed=0)
    outcomes = [
        SuiteOutcome(key=str(level), difficulty=level, figures={REGRET: regret}, said={})
        for level, regret in ((1, 0.0), (3, 0.5), (9, 1.0))
    ]
    table = sum_up_suite(suite, outcomes)
    assert table[REGRET].mean == 0.5
    assert table[f"{REGRET}, difficulty 1-3"].mean == 0.25
    assert table[f"{REGRET}, difficulty 7-10"].mean == 1
    assert f"{REGRET}, difficulty 4-6" not in table
