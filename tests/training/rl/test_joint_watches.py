"""Watches over a team that learns: behaviour, drift, best team, shares of the gradient."""

import logging
import statistics

import pytest
from joint_learning import (
    SEATS,
    Engines,
    draw,
    make_learner,
    play,
    sets_of,
)
from tiny_models import same_weights, weights_of

from simulator.reading import read_episode
from training.rl.loop import BestWeights
from training.rl.team.algorithm import DriftWatch, gradient_shares, team_behaviour


def test_behaviour_is_counted_by_hand(scripted: Engines) -> None:
    pairs = [(scenario, one.first.episode) for scenario, one in sets_of(play(make_learner(), draw(3)))]
    shares = team_behaviour(pairs)
    accepted = ['"accept"' in vote for _, e in pairs for vote in e.votes.values()]
    assert shares["agreement"] == pytest.approx(statistics.fmean(accepted))
    assert 0 < shares["escalated"] < 1 or shares["escalated"] in (0.0, 1.0)
    for role in SEATS:
        reports = [read_episode(scenario, episode).table[role] for scenario, episode in pairs]
        offers = [len(report.offers) if report else 0 for report in reports]
        assert shares[f"offers/{role}"] == pytest.approx(statistics.fmean(offers))
        dear = [
            offer.cost > scenario.public.budget / 4
            for (scenario, _), report in zip(pairs, reports, strict=True)
            for offer in (report.offers if report else ())
        ]
        assert shares[f"hoarding/{role}"] == pytest.approx(statistics.fmean(dear))
        assert 0 <= shares[f"funded/{role}"] <= 1
        assert shares[f"false_claims/{role}"] == 0
    assert shares["asked"] == 0
    assert team_behaviour([]) == {}


def scores(value: float) -> dict[str, float]:
    return {"cto": value, "coo": 0.9}


def test_a_falling_own_score_is_reported_once_and_ends_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = DriftWatch(window=2, alarm=0.1)
    alarms = []
    with caplog.at_level(logging.WARNING):
        for value in (0.9, 0.9, 0.85, 0.7, 0.68, 0.9, 0.9):
            metrics = watch.update(scores(value))
            alarms.append(metrics["drift_alarm/cto"])
            assert metrics["drift_alarm/coo"] == 0.0
    # means of two: .9 .9 .875 .775 .69 .79 .9 against .9
    assert alarms == [0, 0, 0, 1, 1, 1, 0]
    assert [record.message for record in caplog.records] == [
        "cto: own verified score fell by 0.125 (0.900 to 0.775, means of 2 steps)"
    ]
    assert watch.fallen == set()


def test_the_best_validated_team_is_kept(scripted: Engines) -> None:
    learner = make_learner()
    best = BestWeights(learner, draw(2))
    first = best.validate()
    temperatures = {request.sampling.temperature for request, _ in scripted[-1].calls}
    assert temperatures == {learner.config.temperature}  # as it is trained, not greedily
    kept = {role: weights_of(model) for role, model in learner.models.items()}
    learner.step(draw(2))
    best.best_score = 99.0  # as if the first had been unbeatable
    second = best.validate()
    assert (first["best_step"], second["best_step"]) == (0.0, 0.0)
    again = BestWeights(learner, [])
    again.load_state(best.state())
    again.restore()
    assert all(same_weights(kept[role], weights_of(model)) for role, model in learner.models.items())
    learner.step(draw(2))
    best.best_score = -9.0
    assert best.validate()["best_step"] == 2.0


def test_shares_of_the_gradient_by_hand() -> None:
    assert gradient_shares({"cto": 3.0, "coo": 4.0}) == {"cto": 9 / 25, "coo": 16 / 25}
    assert gradient_shares({"cto": 0.0, "coo": float("nan")}) == {}
