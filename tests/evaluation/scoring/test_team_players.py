"""Players of the table without an engine: their order, seats that are needed, a reachable optimum."""

import random
from functools import cache, partial
from itertools import combinations, product
from statistics import fmean

import pytest
from expert_meetings import expert_episode
from fast_loop import slow_except

from benchmarks.scenarios.team_tables import decide_first, follow_seat
from evaluation.scoring.baselines import (
    BEST_HABITS,
    TEAM_PLAYERS,
    TablePlayer,
    check_reports,
    decide_at_random,
    decide_by_majority,
    favourite_option,
    play_best_habits,
    play_chair,
    play_experts,
    play_fields,
    play_one_head,
    play_optimum,
    play_plan,
    play_team_baselines,
    write_reports,
)
from roles.team import SPECIALISTS
from scenarios.company.records import Plan
from scenarios.team import PlanGame, TeamScenario, decision_value, generate
from scenarios.team.experts import best_decision
from simulator.reward import TeamRewardWeights, score_episode

WEIGHTS = TeamRewardWeights()
DIFFICULTIES = (1, 5, 10)


@cache
def draw(difficulty: int, count: int = 60) -> tuple[TeamScenario, ...]:
    return tuple(generate("test", 3, index, difficulty) for index in range(count))


def mean_value(player: TablePlayer, cases: tuple[TeamScenario, ...]) -> float:
    values = []
    for case in cases:
        play = player(case, random.Random(case.key))
        values.append(decision_value(case, check_reports(case, play.reports), play.decision))
    return fmean(values)


@pytest.mark.parametrize("difficulty", slow_except(DIFFICULTIES, 1, 5))
def test_one_offer_per_option_reaches_the_optimum(difficulty: int) -> None:
    assert mean_value(play_optimum, draw(difficulty)) == 1.0


@pytest.mark.parametrize("difficulty", slow_except(DIFFICULTIES, 1, 5))
def test_players_that_do_not_pool_what_seats_know_stay_behind(difficulty: int) -> None:
    cases = draw(difficulty)
    best = mean_value(play_experts(*BEST_HABITS), cases)
    assert mean_value(play_chair(decide_first), cases) <= 0.35
    assert mean_value(play_chair(decide_by_majority), cases) < best - 0.15
    assert all(mean_value(play_chair(follow_seat(seat)), cases) < best - 0.15 for seat in SPECIALISTS)
    assert best < mean_value(play_best_habits, cases) - 0.05  # a choice of habits per case is worth learning
    assert mean_value(play_one_head, cases) > 0.95


@pytest.mark.parametrize("difficulty", slow_except(range(3, 11), 3, 5))
def test_chair_that_decides_at_random_earns_little_from_level_3_on(difficulty: int) -> None:
    assert mean_value(play_chair(decide_at_random), draw(difficulty)) <= 0.15


def test_the_parts_of_few_seats_are_worth_what_enumeration_finds() -> None:
    """No plan with parts of two seats earns more; what all four seats have is the optimum."""
    for case in draw(1, 12):
        best = 0.0
        for option, known in product(case.options, combinations(SPECIALISTS, 2)):
            own = case.case.parts
            for parts in product(*(own[seat][option] for seat in known)):
                others = [own[seat][option][0] for seat in SPECIALISTS if seat not in known]
                if sum(part.cost for part in parts) <= case.public.budget and all(
                    part.keeps_limit for part in (*parts, *others)
                ):
                    plan = Plan(option=option, funded={part.seat: part.choice for part in (*parts, *others)})
                    play = play_plan(case, plan)
                    found = decision_value(case, check_reports(case, play.reports), play.decision)
                    best = max(best, found)
        assert mean_value(play_fields(2), (case,)) == (best if case.optimum else 1.0)
    values = [mean_value(play_fields(count), draw(1)) for count in (1, 2, 3, 4)]
    assert values == sorted(values)
    assert values[1] < 0.5 < values[2] < values[3] == 1


@pytest.mark.slow
def test_every_report_is_needed() -> None:
    losses = dict.fromkeys(SPECIALISTS, 0.0)
    for difficulty in DIFFICULTIES:
        for case in draw(difficulty):
            reports = write_reports(case, BEST_HABITS[0], random.Random(0))
            table = check_reports(case, reports)
            whole = decision_value(case, table, best_decision(case.public, table, "exact"))
            for seat in SPECIALISTS:
                part = {**table, seat: None}
                without = decision_value(case, part, best_decision(case.public, part, "exact"))
                losses[seat] += (whole - without) / (len(DIFFICULTIES) * 60)
    assert min(losses.values()) >= 0.1, losses


def test_baselines_are_scored_on_the_same_cases_in_order() -> None:
    cases = draw(3, 20)
    plays = play_team_baselines(cases, WEIGHTS)
    assert tuple(plays) == tuple(TEAM_PLAYERS)
    assert all([one.key for one in rows] == [case.key for case in cases] for rows in plays.values())
    means = {stage: fmean(one.reward for one in rows) for stage, rows in plays.items()}
    assert means["oracle"] == 1.0
    assert means["random"] < means["greedy"] < means["oracle_best"] < means["single"] < 1.0
    assert means["random"] < means["majority"] < means["oracle_best"]
    assert means["oracle_common"] < min(means["oracle_best"], means["oracle_rising"])
    assert all(one.consensus == 1 for stage in plays if stage != "random" for one in plays[stage])


def test_experts_ask_where_the_game_lets_them_and_gain_by_it() -> None:
    cases = draw(2, 40)
    silent, asking = (
        play_team_baselines(cases, WEIGHTS, ("oracle_rising", "greedy"), partial(PlanGame, questions=most))
        for most in (0, 2)
    )
    assert silent["greedy"] == asking["greedy"]
    assert not any(one.asked for one in silent["oracle_rising"])
    assert max(len(one.asked) for one in asking["oracle_rising"]) == 2
    gains = [
        after.reward - before.reward
        for before, after in zip(silent["oracle_rising"], asking["oracle_rising"], strict=True)
    ]
    assert fmean(gains) > 0.03


def test_an_expert_meeting_is_scored_by_its_texts() -> None:
    case = draw(3, 20)[4]
    episode = expert_episode(case, *BEST_HABITS)
    assert set(episode.reports) == set(episode.votes) == set(SPECIALISTS)
    assert score_episode(case, episode, WEIGHTS).consensus == 1.0


def test_a_seat_favours_what_its_own_parts_add_to() -> None:
    case = draw(1, 20)[0]
    base = {letter: option.base for letter, option in case.case.options.items()}
    share = case.case.budget // 4
    for seat in SPECIALISTS:
        totals = {
            option: base[option]
            + max(
                part.worth for part in case.parts_of(seat, option) if part.cost <= share and part.keeps_limit
            )
            for option in case.options
        }
        assert totals[favourite_option(case, seat)] == max(totals.values())
