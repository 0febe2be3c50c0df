"""In full style a seat finds its offers openly: what it says stands in its brief or was measured before."""

import json
import re

import pytest

from scenarios.base import Step
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import ExpertMessage, hold_meeting
from scenarios.team.experts import SHARES, best_report
from scenarios.team.offers import is_needed, is_vetoed
from simulator.graph.runner import MAX_TURNS

LEAD = re.compile(r"^([A-Z]) for at most (\d+): (.+)$", re.MULTILINE)
MEASURED = re.compile(r"cost (\d+), worth (-?\d+); hard limit (holds|BREAKS)$")
BEST = re.compile(r"best (.+) (-?\d+)$", re.MULTILINE)
NOW = re.compile(r"^Option ([A-Z]) as it is: .*hard limit (holds|BREAKS)\.$", re.MULTILINE)
Found = dict[tuple[str, frozenset[str]], tuple[int, int, bool]]  # (option, part) -> cost, worth, keeps limit


def play(game: PlanGame, seat: str, steps: tuple[Step, ...]) -> tuple[Found, dict[str, int]]:
    """Return what was measured, and the most that a part may cost on each option as it was said before."""
    found: Found = {}
    most: dict[str, int] = {}
    assert steps[-1].call is None
    for step in steps[:-1]:
        most |= {option: int(amount) for option, amount, _ in LEAD.findall(step.text)}
        assert step.call is not None
        option, part = step.call.arguments["option"], step.call.arguments["part"]
        assert option in most, "measured before an amount was named"
        match = MEASURED.search(game.call_tool(seat, step.call, {}))
        assert match is not None
        cost, worth, limit = match.groups()
        found[option, frozenset(part)] = int(cost), int(worth), limit == "holds"
    return found, most


def last_best(steps: tuple[Step, ...], option: str) -> tuple[set[str], int] | None:
    """The last part that was called the best in the search on the option, and its worth."""
    at, best = "", None
    for line in "\n".join(step.text for step in steps).splitlines():
        lead, named = LEAD.match(line), BEST.search(line)
        at = lead[1] if lead else at
        if named and at == option:
            best = set(named[1].split(" + ")), int(named[2])
    return best


def reports(
    difficulty: int, count: int, habits: tuple[str, str] | None = None
) -> list[tuple[PlanGame, str, tuple[ExpertMessage, ...]]]:
    games = [PlanGame(generate("train", 0, index, difficulty), "full") for index in range(count)]
    meetings = [(game, hold_meeting(game, habits=habits)) for game in games]
    return [(game, seat, meeting.messages[seat]) for game, meeting in meetings for seat in game.case.seats]


def test_every_offer_is_the_best_that_was_measured_within_the_amount_named() -> None:
    num_offers = 0
    for game, seat, (first, *_) in reports(difficulty=1, count=15):
        found, most = play(game, seat, first.steps)
        text = first.steps[-1].text
        report = json.loads(text[text.index("{") :])
        assert {offer["option"] for offer in report["offers"]} == set(most)
        for offer in report["offers"]:
            option = offer["option"]
            own = found[option, frozenset(offer["part"])]
            assert own == (offer["cost"], offer["worth"], True)
            within = [one for (at, _), one in found.items() if at == option and one[0] <= most[option]]
            assert own[1] == max(worth for _, worth, keeps in within if keeps)
            every = [part for part in game.case.parts_of(seat, option) or () if part.cost <= most[option]]
            assert len(within) == sum(bool(part.choice) for part in every), "parts within were left out"
            assert last_best(first.steps, option) == (set(offer["part"]), offer["worth"])
            num_offers += 1
        said = [
            f"{offer['option']}: {' + '.join(offer['part'])}, cost {offer['cost']}, worth {offer['worth']}"
            for offer in report["offers"]
        ]
        assert text[: text.index("{")].splitlines()[-len(said) :] == said, "the best parts again"
    assert num_offers > 100


def test_a_reply_offers_the_best_of_all_that_was_measured_by_then() -> None:
    num_before = num_now = 0
    with_money_left = reports(1, 40, ("quarter", "exact"))
    for game, seat, messages in [*reports(difficulty=1, count=40), *with_money_left]:
        for reply in messages[1:-1]:
            found, _ = play(game, seat, messages[0].steps)
            now, most = play(game, seat, reply.steps)
            text = reply.steps[-1].text
            offer = json.loads(text[text.index("{") :])["offer"]
            assert not set(now) & set(found), "measured twice"
            if offer is None:
                continue
            num_before, num_now = num_before + (not now), num_now + bool(now)
            asked = re.search(r"on option ([A-Z]) that costs at most (\d+) k", reply.brief)
            assert asked is not None
            option, amount = asked[1], int(asked[2])
            assert most in ({}, {option: amount})  # none where nothing is measured now
            assert last_best(reply.steps, option) == (set(offer["part"]), offer["worth"])
            again = "\n".join(step.text for step in reply.steps)
            for part in game.case.parts_of(seat, option) or ():
                if part.cost <= amount and (option, frozenset(part.choice)) in found:
                    assert f"{' + '.join(part.choice)}: cost {part.cost} of {amount}: fits" in again
            within = [one for (at, _), one in (found | now).items() if at == option and one[0] <= amount]
            assert offer["worth"] == max(worth for _, worth, keeps in within if keeps)
            every = [part for part in game.case.parts_of(seat, option) or () if part.cost <= amount]
            assert len(within) == sum(bool(part.choice) for part in every), "parts within were left out"
    assert num_before > 3
    assert num_now > 3


def test_the_amount_named_is_a_share_of_the_budget() -> None:
    divisors = set()
    for game, seat, (first, *_) in reports(difficulty=1, count=15):
        _, most = play(game, seat, first.steps)
        habit = first.steps[0].text.split("\n")[0]
        divisors.add(SHARES[habit])
        for option, amount in most.items():
            single = min(part.cost for part in game.case.parts_of(seat, option) or () if part.choice)
            share = game.case.public.budget // SHARES[habit]
            if is_needed(game.case, seat, option):
                assert amount >= max(share, game.case.public.budget // 2)
            else:
                assert amount == max(share, single)
    assert divisors == {1, 2, 3, 4}


def test_what_can_be_bought_on_an_option_is_said_again_where_its_search_begins() -> None:
    num_leads = 0
    for _, _, (first, *replies) in reports(difficulty=1, count=15):
        for option, _, said in LEAD.findall(
            "\n".join(step.text for one in (first, *replies) for step in one.steps)
        ):
            (line,) = re.findall(
                rf"^Upgrades on option {option}, with their cost: (.+)\.$", first.brief, re.MULTILINE
            )
            assert said.split(", ") == [re.sub(r" \d+(;.*)?$", "", priced) for priced in line.split(", ")]
            num_leads += 1
    assert num_leads > 100


@pytest.mark.parametrize("difficulty", [1, 4, 7])
def test_a_share_leaves_no_option_out_on_which_there_is_something_to_offer(difficulty: int) -> None:
    for index in range(20):
        case = generate("train", 0, index, difficulty)
        for seat in case.seats:
            wanted = [offer.option for offer in best_report(case, seat, "full").offers]
            for habit in SHARES:
                assert [offer.option for offer in best_report(case, seat, habit).offers] == wanted


@pytest.mark.parametrize("difficulty", [3, 6])
def test_no_message_takes_more_turns_than_play_allows(difficulty: int) -> None:
    turns = [len(message.steps) for *_, said in reports(difficulty, count=15) for message in said]
    assert 12 < max(turns) <= MAX_TURNS


@pytest.mark.parametrize("difficulty", [1, 4])
def test_the_brief_shows_by_the_figures_of_now_which_options_need_a_part(difficulty: int) -> None:
    seen = set()
    for game, seat, (first, *_) in reports(difficulty, count=20):
        now = dict(NOW.findall(first.brief))
        for option in game.case.options:
            broken = is_needed(game.case, seat, option) or is_vetoed(game.case, seat, option)
            assert now[option] == ("BREAKS" if broken else "holds")
            seen.add(broken)
    assert seen == {True, False}
