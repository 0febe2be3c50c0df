"""Negotiation games: the best deal by a second method, points by hand, texts that hold every rule."""

import re
from itertools import product

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from roles.team import RECONCILER, SPECIALISTS
from scenarios.suites import NegotiationCase, NegotiationGame, draw_negotiation, write_deal


def find_best_by_milp(case: NegotiationCase) -> int:
    """The largest surplus by integer programming: one binary for each option of each issue."""
    points = {seat: np.concatenate(case.seats[seat].facts["points"]) for seat in SPECIALISTS}
    least = {seat: case.least(seat) for seat in SPECIALISTS}
    sizes = [len(options) for _, options in case.topics]
    issues = np.repeat(np.arange(len(sizes)), sizes)
    one_each = (issues == np.arange(len(sizes))[:, None]).astype(float)
    found = milp(
        -np.sum(list(points.values()), axis=0),
        integrality=np.ones(len(issues), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(np.array(list(points.values())), list(least.values()), np.inf),
        ],
    )
    assert found.fun is not None
    return round(-found.fun) - sum(least.values())


@pytest.mark.parametrize("difficulty", [1, 4, 7, 9])
def test_the_best_deal_is_that_of_a_second_method(difficulty: int) -> None:
    for index in range(10):
        case = draw_negotiation(0, index, difficulty)
        assert case.best == find_best_by_milp(case) >= 1


def test_points_and_surplus_by_hand() -> None:
    case = draw_negotiation(0, 1, 1)
    (first, second) = case.seats["cto"].facts["points"]
    assert case.points("cto", (2, 3)) == first[1] + second[2]
    assert max(first) + max(second) == 100
    for deal in product((1, 2, 3), repeat=2):
        above = [case.points(seat, deal) - case.least(seat) for seat in SPECIALISTS]
        assert case.surplus(deal) == (sum(above) if min(above) >= 0 else None)


def test_games_are_drawn_by_their_coordinates() -> None:
    assert draw_negotiation(0, 3, 5) == draw_negotiation(0, 3, 5)
    others = [draw_negotiation(1, 3, 5), draw_negotiation(0, 4, 5), draw_negotiation(0, 3, 6)]
    assert all(one.seats != draw_negotiation(0, 3, 5).seats for one in others)
    with pytest.raises(ValueError, match="difficulty"):
        draw_negotiation(0, 0, 11)


def test_harder_games_have_more_deals_and_a_smaller_share_that_suits_all() -> None:
    shares, counts = [], []
    for difficulty in (1, 5, 9):
        games = [draw_negotiation(0, index, difficulty) for index in range(10)]
        fitting = [sum(game.surplus(deal) is not None for deal in game.deals()) for game in games]
        counts.append(len(list(games[0].deals())))
        shares.append(sum(fitting) / 10 / counts[-1])
    assert counts == sorted(set(counts))
    assert shares == sorted(set(shares), reverse=True)


def test_a_stranger_finds_every_rule_in_the_text() -> None:
    """Points, least total and options are read out of the brief alone; the example is of the right form."""
    case = draw_negotiation(0, 5, 6)
    game = NegotiationGame(case)
    for seat in SPECIALISTS:
        brief = game.write_report_brief(seat)
        rows = [[int(one) for one in row.split(", ")] for row in re.findall(r"^[A-E]: (.*)$", brief, re.M)]
        assert rows == case.seats[seat].facts["points"]
        least = re.search(r"Your least total is (\d+)\.", brief)
        assert least is not None
        assert int(least[1]) == case.least(seat)
        assert all(str(case.seats[other].facts["points"]) not in brief for other in SPECIALISTS)
    opening, vote = re.findall(r"\{.*?\}(?:, \".*?\})?", game.prompt_role("cto").mandate)
    assert game.read_vote(vote) == {"vote": "object", "reason": "Too little for me: move A to 2."}
    two = NegotiationGame(draw_negotiation(0, 0, 1))
    assert two.read_report("cto", opening) is not None
    assert "points" not in game.write_decision_brief(dict.fromkeys(SPECIALISTS))
    assert '"deal"' in game.prompt_role(RECONCILER).mandate


def test_deals_that_are_none() -> None:
    game = NegotiationGame(draw_negotiation(0, 0, 1))
    assert game.read_decision({}, write_deal((3, 1), reason="")) == {"deal": {"A": 3, "B": 1}, "reason": ""}
    for text in (
        write_deal((4, 1)),
        write_deal((0, 1)),
        write_deal((1,)),
        write_deal((1, 1, 1)),
        '{"deal": {"A": "1", "B": 1}}',
        '{"deal": {"A": true, "B": 1}}',
        "A1, B1",
        "",
    ):
        assert game.read_decision({}, text) is None
