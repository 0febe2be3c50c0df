"""Words that lead from the sheet to the best plan, by hand."""

import json

from tabled_reports import make_public, tabled

from roles.team import RECONCILER
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.funding import best_funding
from scenarios.team.texts.comparing import compare_options, explain_best


def test_of_plans_of_equal_worth_the_cheaper_is_best() -> None:
    """A: coo returns 26/12, cto 20/10, both cost 22 of 20."""
    table = {"cto": tabled("cto", ("A", 10, 20), ("B", 9, 36)), "coo": tabled("coo", ("A", 12, 26))}
    public = make_public(20, {"A": 30, "B": 20, "C": 10}, ("cto", "coo"))
    lines, best = compare_options(public, table)
    assert lines == [
        "A: worth 56, best A coo 56",
        "B: worth 56 to 56: equal, cost 9 to 12: less, best B cto 56",
        "C: worth 10 to 56: less",
    ]
    assert best is not None
    assert best.option == "B"


def test_two_offers_that_give_way_to_one_are_a_leap_that_shows_its_sums() -> None:
    """By return cto and coo are funded for 12 of 20; risk alone is worth more and fits beside neither."""
    table = {
        "cto": tabled("cto", ("A", 6, 12)),
        "coo": tabled("coo", ("A", 6, 10)),
        "risk": tabled("risk", ("A", 19, 30)),
    }
    public = make_public(20, {"A": 5}, ("cto", "coo", "risk"))
    lines, leader = explain_best(public, table, best_funding(public, table))
    assert lines == [
        "A: worth 27, best A cto coo 27",
        "risk for cto: worth 30 to 12: more, cost 12 - 6 + 19 = 25 of 20: over",
        "risk for coo: worth 30 to 10: more, cost 12 - 6 + 19 = 25 of 20: over",
        "better A risk: worth 5 + 30 = 35, cost 19",
    ]
    assert leader is not None
    assert leader.worth == 27


def test_at_the_table_the_plan_is_totalled_after_words_that_lead_to_it() -> None:
    """By return the last best line names the plan; by exact funding an exchange or a leap may follow."""
    seen = set()
    for index in range(40):
        game = PlanGame(generate("train", 0, index, 1), "full")
        decided = hold_meeting(game).messages[RECONCILER][-1]
        *_, total, last = decided.steps
        if total.call is None or total.call.name != "total":
            continue
        habit, answer = last.text.split("\n", 1)
        decision = json.loads(answer)
        plan = " ".join(["best", decision["option"], *decision["fund"]])
        seen.add(habit)
        if habit == "return":
            assert plan in total.text
        else:
            last_line = total.text.splitlines()[-1]
            assert plan in total.text or ": fits" in total.text or last_line.startswith("better ")
    assert seen == {"exact", "return"}  # the sheet does not lead to funding by worth
