"""Faults of reasoning planted into sound plays: the chain check refuses each kind, and no sound play.

Each kind changes the words of an oracle's play alone: calls, observations and the answer stay true.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from teacher_server import lesson_of, perform

from roles.base import split_answer
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import hold_meeting
from training.data.teacher.checks import PlayedTurn, check_chain
from training.data.teacher.lessons import Lesson, list_lessons
from training.data.teacher.reasoning import read_figures

Turns = list[PlayedTurn]
Plant = Callable[[Turns, random.Random, str], Turns | None]  # None: the play has no place for the fault
NUM_PLAYS = 32
NUM_SEATS = 8  # meetings of five lessons each
MOST_MISSED = 1  # of NUM_PLAYS: at least 95 % are caught
LEVELS = (1, 2, 3)


def demonstrate(scenario: Scenario) -> Turns:
    family = FAMILIES[scenario.family]
    return perform(scenario, family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}")))


@cache
def draw_play(family: str, index: int, level: int) -> tuple[Lesson, tuple[PlayedTurn, ...]]:
    case = FAMILIES[family].generate("train", 0, index, level)
    lesson = lesson_of(case)
    return lesson, tuple(demonstrate(case))


def draw_plays() -> Iterator[tuple[Lesson, tuple[PlayedTurn, ...]]]:
    """Plays of all families and levels in turn."""
    for index in range(2 * NUM_PLAYS):
        for level in LEVELS:
            for family in FAMILIES:
                yield draw_play(family, index, level)


def words_of(turn: PlayedTurn) -> tuple[str, str]:
    """(words, answer after them)."""
    if turn.call is not None:
        return turn.text, ""
    words, answer = split_answer(turn.text)
    return words, answer


def edit(turns: Turns, place: int, change: Callable[[str], str]) -> Turns | None:
    """The play with the words of one turn changed; None where they stay."""
    words, answer = words_of(turns[place])
    changed = change(words)
    if changed == words:
        return None
    return [*turns[:place], replace(turns[place], text=changed + answer), *turns[place + 1 :]]


def edit_match(
    turns: Turns, rng: random.Random, pattern: str, change: Callable[[int, re.Match[str]], str | None]
) -> Turns | None:
    """The play with one match of the pattern changed, of those for which `change` has another text."""
    found = [
        (place, match, other)
        for place, turn in enumerate(turns)
        for match in re.finditer(pattern, words_of(turn)[0])
        if (other := change(place, match)) is not None and other != match[0]
    ]
    if not found:
        return None
    place, match, other = rng.choice(found)
    return edit(turns, place, lambda words: words[: match.start()] + other + words[match.end() :])


def add(turns: Turns, sentence: str) -> Turns | None:
    """The play with a sentence at the end of its last words."""
    return edit(turns, -1 + len(turns), lambda words: f"{words.rstrip()}\n{sentence}\n")


def list_given(turns: Turns, name: str) -> list[int]:
    texts = [turn.observation for turn in turns]
    return sorted({int(v) for text in texts for one, v in read_figures(text) if one == name})


def list_known(turns: Turns) -> set[int]:
    """Every number that the play or its tools hold."""
    return {int(n) for turn in turns for n in re.findall(r"\d+", turn.text + turn.observation)}


def list_measured(turns: Turns) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    return [
        (tuple(turn.call.arguments["part"]), dict(read_figures(turn.observation)))
        for turn in turns
        if turn.call is not None and "part" in turn.call.arguments
    ]


def answer_of(turns: Turns) -> dict[str, object]:
    found: dict[str, object] = json.loads(words_of(turns[-1])[1])
    return found


def pick(values: Sequence[int], value: int, rng: random.Random) -> int | None:
    others = [one for one in values if one != value]
    return rng.choice(others) if others else None


def say(one: int, other: int) -> str:
    return "more" if one > other else "less" if one < other else "equal"


def take_worth_for_cost(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(place: int, found: re.Match[str]) -> str | None:
        given = dict(read_figures(turns[place - 1].observation))
        worth = int(given.get("worth", -1))
        return None if worth < 0 or worth == int(found[1]) else f"cost {worth} of"

    return edit_match(turns, rng, r"cost (\d+) of", change)


def take_anothers_cost(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        amount, said = int(found[2]), found[3]
        fitting = [c for c in list_given(turns, "cost") if (c <= amount) == (said == "fits")]
        other = pick(fitting, int(found[1]), rng)
        return None if other is None else f"cost {other} of {amount}: {said}"

    return edit_match(turns, rng, r"cost (\d+) of (\d+): (fits|over)", change)


def take_anothers_worth(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        other = pick(list_given(turns, "worth"), int(found[1]), rng)
        return None if other is None else f"worth {other} to {found[2]}: {say(other, int(found[2]))}"

    return edit_match(turns, rng, r"worth (\d+) to (\d+): (?:more|less|equal|no more)", change)


def compare_with_another(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        other = pick(list_given(turns, "worth"), int(found[2]), rng)
        return None if other is None else f"worth {found[1]} to {other}: {say(int(found[1]), other)}"

    return edit_match(turns, rng, r"worth (\d+) to (\d+): (?:more|less|equal|no more)", change)


def exchange_comments(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    places = [place for place, turn in enumerate(turns) if turn.call is not None and turn.text]
    pairs = [
        (one, other)
        for one in places
        for other in places
        if one < other
        and turns[one].text != turns[other].text
        and turns[one - 1].observation != turns[other - 1].observation
    ]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    changed = list(turns)
    changed[one] = replace(turns[one], text=turns[other].text)
    changed[other] = replace(turns[other], text=turns[one].text)
    return changed


NAMES = {"los": "loss"}  # as they are read, and as they are written
BEST = r"best ([^\d\n]+?) (\d+)(?=$|\n)"


def name_another_best(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        value = int(found[2])
        others = [
            " + ".join(part)
            for part, figures in list_measured(turns)
            if part and " + ".join(part) != found[1] and figures["worth"] != value
        ]
        return f"best {rng.choice(others)} {value}" if others else None

    return edit_match(turns, rng, BEST, change)


def give_best_anothers_worth(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        other = pick(list_given(turns, "worth"), int(found[2]), rng)
        return None if other is None else f"best {found[1]} {other}"

    return edit_match(turns, rng, BEST, change)


def take_anothers_figure(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    measured = [(part, figures) for part, figures in list_measured(turns) if part]
    if not measured:
        return None
    name = next(iter(measured[0][1]))
    pairs = [
        (part, other[name])
        for part, figures in measured
        for _, other in measured
        if name in figures and name in other and other[name] != figures[name]
    ]
    if not pairs:
        return None
    part, value = rng.choice(pairs)
    return add(turns, f"With {' and '.join(part)} the {NAMES.get(name, name)} is {value:g}.")


def conclude_another_part(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    answer = answer_of(turns)
    others = [part for part, _ in list_measured(turns) if part and set(part) != set(answer.get("part", ()))]  # type: ignore[call-overload]
    if not others:
        return None
    return add(turns, f"So the best part is {' and '.join(rng.choice(others))}.")


def conclude_an_unmeasured_part(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    measured = [set(part) for part, _ in list_measured(turns)]
    names = sorted(set[str]().union(*measured)) if measured else []
    sets = [{*one, name} for one in measured for name in names if {*one, name} not in measured]
    if not sets:
        return None
    return add(turns, f"Therefore I choose {', '.join(sorted(rng.choice(sets)))}.")


def conclude_other_funding(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    answer = answer_of(turns)
    if not answer.get("fund"):
        return None
    fund = list(answer["fund"])  # type: ignore[call-overload]
    fewer = fund[:-1] if len(fund) > 1 else ["cto" if fund != ["cto"] else "coo"]
    return add(turns, f"So fund on option {answer['option']}: best {answer['option']} {' '.join(fewer)}")


def conclude_other_option(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    answer = answer_of(turns)
    if not answer.get("fund"):
        return None
    other = "B" if answer["option"] == "A" else "A"
    return edit_match(
        turns,
        rng,
        rf"best {answer['option']} (.*)(?=\nfavour)",
        lambda _, found: f"best {other} {found[1]}",
    )


def flip_a_favour(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    return edit_match(
        turns, rng, r"(?<=[a-z] )(yes|no)\b(?=,|\n|$)", lambda _, found: "no" if found[1] == "yes" else "yes"
    )


def drop_the_last_best(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    places = [place for place, turn in enumerate(turns) if re.search(BEST, words_of(turn)[0])]
    told = "\n".join(words_of(turn)[0] for turn in turns)
    if len(places) < 2 or re.search("better |: more, cost .*: fits, worth", told):
        return None  # the step to a better plan says as much as the best one after it
    return edit(turns, places[-1], lambda words: re.sub(rf",? ?{BEST}", "", words))


def give_the_answer_anothers_worth(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    answer = answer_of(turns)
    if not answer.get("part"):
        return None
    other = pick(list_given(turns, "worth"), int(str(answer["worth"])), rng)
    part = " and ".join(answer["part"])  # type: ignore[arg-type]
    return None if other is None else add(turns, f"The best part is {part}: worth {other}.")


def claim_a_breach(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(place: int, found: re.Match[str]) -> str | None:
        holds = place > 0 and "limit holds" in turns[place - 1].observation
        return "fits, breaks the limit" if holds else None

    return edit_match(turns, rng, r"fits(?=, worth|, best)", change)


def claim_a_breach_in_prose(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    keeping = [
        turn.call.arguments["part"]
        for turn in turns
        if turn.call is not None and "limit holds" in turn.observation and turn.call.arguments.get("part")
    ]
    if not keeping:
        return None
    return add(turns, f"Note that {' with '.join(rng.choice(keeping))} breaks the hard limit.")


def claim_a_kept_limit(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    return edit_match(turns, rng, r"breaks the limit", lambda *_: "keeps the limit")


def say_over(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    return edit_match(turns, rng, r": fits", lambda *_: ": over")


def say_fits(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    return edit_match(turns, rng, r": over", lambda *_: ": fits")


def compare_falsely(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    flipped = {"more": "less", "less": "more"}
    return edit_match(turns, rng, r"(?<=\d: )(more|less)", lambda _, found: flipped[found[0]])


def say_nothing(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    return [replace(turn, text=words_of(turn)[1]) for turn in turns]


def say_nothing_of_weight(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    said = "I compare what can be bought and take what serves the company best."
    return [replace(turn, text=f"{said}\n{words_of(turn)[1]}") for turn in turns]


def conclude_without_figures(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    answer = answer_of(turns)
    if not answer.get("part"):
        return None
    part = " and ".join(answer["part"])  # type: ignore[arg-type]
    said = f"So the best part is {part}.\n"
    return [replace(t, text=(said if t is turns[-1] else "") + words_of(t)[1]) for t in turns]


def invent(turns: Turns, rng: random.Random, brief: str) -> int | None:
    known = list_known(turns) | {int(number) for number in re.findall(r"\d+", brief)}
    free = [number for number in range(2, 11) if number not in known]
    return rng.choice(free) if free else None


def invent_a_cost(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    number = invent(turns, rng, brief)
    return edit_match(
        turns, rng, r"cost (\d+) of", lambda *_: None if number is None else f"cost {number} of"
    )


def compare_with_an_invention(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    number = invent(turns, rng, brief)

    def change(_: int, found: re.Match[str]) -> str | None:
        return None if number is None else f"worth {found[1]} to {number}: {say(int(found[1]), number)}"

    return edit_match(turns, rng, r"worth (\d+) to (\d+): (?:more|less|equal|no more)", change)


def invent_a_margin(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    number = invent(turns, rng, brief)
    return None if number is None else add(turns, f"It beats the next one by {number} k$.")


def invent_a_sum(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    number = invent(turns, rng, brief)
    return None if number is None else add(turns, f"That leaves {number} + 1 = {number + 1}.")


def take_another_amount(turns: Turns, rng: random.Random, brief: str) -> Turns | None:
    def change(_: int, found: re.Match[str]) -> str | None:
        other = pick(list_given(turns, "worth"), int(found[2]), rng)
        if other is None:
            return None
        return f"cost {found[1]} of {other}: {'fits' if int(found[1]) <= other else 'over'}"

    return edit_match(turns, rng, r"cost (\d+) of (\d+): (fits|over)", change)


KINDS: tuple[Plant, ...] = (
    take_worth_for_cost,
    take_anothers_cost,
    take_anothers_worth,
    compare_with_another,
    exchange_comments,
    name_another_best,
    give_best_anothers_worth,
    take_anothers_figure,
    conclude_another_part,
    conclude_an_unmeasured_part,
    conclude_other_funding,
    conclude_other_option,
    flip_a_favour,
    drop_the_last_best,
    give_the_answer_anothers_worth,
    claim_a_breach,
    claim_a_breach_in_prose,
    claim_a_kept_limit,
    say_over,
    say_fits,
    compare_falsely,
    say_nothing,
    say_nothing_of_weight,
    conclude_without_figures,
    invent_a_cost,
    compare_with_an_invention,
    invent_a_margin,
    invent_a_sum,
    take_another_amount,
)


def plant(kind: Plant) -> Iterator[tuple[Lesson, Turns]]:
    """Plays that have a place for the fault, with it."""
    for lesson, turns in draw_plays():
        changed = kind(list(turns), random.Random(f"{kind.__name__}/{lesson.key}"), lesson.brief)
        if changed is not None:
            yield lesson, changed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_planted_fault_is_caught(kind: Plant) -> None:
    planted = list(islice(plant(kind), NUM_PLAYS))
    missed = [lesson.key for lesson, turns in planted if check_chain(lesson, turns, min_reward=1.0) is None]
    assert len(planted) == NUM_PLAYS
    assert len(missed) <= MOST_MISSED, missed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_sound_play_is_kept(family: str, level: int) -> None:
    for index in range(NUM_PLAYS):
        lesson, turns = draw_play(family, index, level)
        assert check_chain(lesson, turns, min_reward=1.0) is None, lesson.key


@pytest.mark.parametrize("level", LEVELS)
def test_every_sound_seat_is_kept(level: int) -> None:
    for index in range(NUM_SEATS):
        case = generate("train", 0, index, level)
        game = PlanGame(case)
        meeting = hold_meeting(game)
        for lesson in list_lessons(case):
            said = meeting.messages[lesson.name]
            heard = said if lesson.name == RECONCILER else (said[0], said[-1])
            turns = [
                PlayedTurn(
                    text=step.text,
                    call=step.call,
                    observation=""
                    if step.call is None
                    else game.call_tool(lesson.name, step.call, one.reports),
                    asked=one.brief if one is not said[0] and place == 0 else "",
                )
                for one in heard
                for place, step in enumerate(one.steps)
            ]
            assert check_chain(lesson, turns, min_reward=1.0) is None, lesson.key
