"""What the offers of seats are worth: alone, together, and among the partners of other sets."""

import itertools
import math
from dataclasses import replace

import pytest

from roles.team import SPECIALISTS
from scenarios.team import Table, TeamScenario, generate
from scenarios.team.experts import expert_report
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights
from training.rl.credit import coalition_reward, cross_values, shapley_values

WEIGHTS = TeamRewardWeights()


def meet(scenario: TeamScenario, habit: str) -> Episode:
    reports = {role: expert_report(scenario, role, habit).text for role in scenario.seats}
    return Episode(
        scenario_key=scenario.key, index_in_group=0, trajectories={}, reports=reports, decision="", votes={}
    )


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def table_of(scenario: TeamScenario, habit: str = "easy") -> Table:
    return read_episode(scenario, meet(scenario, habit)).table


def test_the_offers_of_all_are_worth_more_than_those_of_none() -> None:
    gains = [
        coalition_reward(scenario, table, SPECIALISTS, WEIGHTS)
        - coalition_reward(scenario, table, (), WEIGHTS)
        for scenario in draw(20)
        for table in [table_of(scenario, "measured")]
    ]
    assert sum(gains) / len(gains) > 0.3


def test_shapley_values_are_the_mean_gain_over_all_orders_of_speaking() -> None:
    """All 24 orders one by one; and the values add up to what all offers bring over none."""
    for scenario in draw(3):
        table = table_of(scenario)
        found = shapley_values(scenario, table, WEIGHTS)
        gains: dict[str, list[float]] = {seat: [] for seat in SPECIALISTS}
        for order in itertools.permutations(SPECIALISTS):
            for place, seat in enumerate(order):
                before = coalition_reward(scenario, table, order[:place], WEIGHTS)
                gains[seat].append(coalition_reward(scenario, table, order[: place + 1], WEIGHTS) - before)
        assert found == pytest.approx({seat: sum(of_seat) / 24 for seat, of_seat in gains.items()})
        whole = coalition_reward(scenario, table, SPECIALISTS, WEIGHTS)
        nothing = coalition_reward(scenario, table, (), WEIGHTS)
        assert math.fsum(found.values()) == pytest.approx(whole - nothing)


def test_a_seat_without_offers_and_needs_is_worth_nothing() -> None:
    for scenario in draw(4):
        episode = meet(scenario, "easy")
        empty = '{"offers": [], "needs": [], "veto": []}'
        silent = replace(episode, reports={**episode.reports, "risk": empty})
        values = shapley_values(scenario, read_episode(scenario, silent).table, WEIGHTS)
        assert values["risk"] == pytest.approx(0.0)


def test_cross_values_are_the_best_plan_by_one_report_among_the_partners_of_every_set() -> None:
    for scenario in draw(3):
        tables = [table_of(scenario, habit) for habit in ("full", "lean", "easy", "lean")]
        found = cross_values(scenario, tables, WEIGHTS)
        for own, by_seat in enumerate(found):
            for seat, row in by_seat.items():
                for partners, value in zip(tables, row, strict=True):
                    mixed = {**partners, seat: tables[own][seat]}
                    assert value == coalition_reward(scenario, mixed, SPECIALISTS, WEIGHTS)
        assert found[1] == found[3]
