"""One generic family over a domain: the best part of a plan on one option within an amount."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.part import MAX_CALLS, PartAnswer
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, ToolError, Verdict, rejected
from scenarios.company.domain import Domain
from scenarios.company.parts.baselines import (
    answer_greedily,
    answer_honestly,
    answer_nothing,
    answer_randomly,
)
from scenarios.company.parts.demonstrations import answer_of, count_most_calls, demonstrate
from scenarios.company.parts.question import (
    draw_question,
    find_best,
    find_best_again,
    list_affordable,
    list_parts,
    read_choice,
    read_question,
)
from scenarios.company.parts.texts import describe_option, write_brief, write_measured
from scenarios.company.setting import find_sector
from scenarios.headroom import blind_baseline, share_of_room


def generate(domain: Domain, style: Style, split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One scenario; a pure function of its coordinates.

    Raises:
        ValueError: coordinates out of range.
    """
    facts = draw_question(domain, split, seed, index, difficulty)
    question = read_question(facts)
    parts = list_parts(domain, question)
    best = find_best(parts, question.amount)
    worths = [part.worth for part in list_affordable(parts, question.amount)]
    return Scenario(
        family=domain.seat,
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=domain.seat,
        brief=write_brief(domain, facts, style),
        facts=facts,
        truth={**answer_of(best), "blind": list(blind_baseline(worths, difficulty))},
        optimal_tool_calls=count_most_calls(domain, question, style),
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {key: scenario.truth[key] for key in ("part", "cost", "worth")}


def verify(domain: Domain, style: Style, scenario: Scenario, text: str) -> Verdict:
    """Reward 0.6 head-room over a blind choice + 0.3 best part + 0.1 figures right.

    A part that is over the amount, breaks the limit or is no better than a blind choice gets 0.
    """
    try:
        answer = parse_answer(text, PartAnswer)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    question, truth = read_question(scenario.facts), scenario.truth
    choice = read_choice(domain, question, style, answer.part)
    if choice is None:
        return rejected("unknown_id", f"no such part: {', '.join(answer.part)[:200]}")
    part = next(part for part in list_parts(domain, question) if part.choice == choice)
    if part.cost > question.amount:
        return rejected("infeasible", f"cost {part.cost} is over the amount {question.amount}")
    if not part.keeps_limit:
        return rejected("infeasible", f"breaks the hard limit: {domain.write_figures(part.figures)}")
    exact = list(choice) == truth["part"]
    numerator, denominator = truth["blind"]
    graded = share_of_room(part.worth, truth["worth"], (numerator, denominator))
    right = ((answer.cost == part.cost) + (answer.worth == part.worth)) / 2 if graded else 0.0
    return Verdict(
        reward=(6 * graded + 3 * exact + right) / 10,
        parts={"graded": graded, "exact": float(exact), "figures": right},
        exact=exact,
        feasible=True,
        explanation=f"cost {part.cost}, worth {part.worth} (best: {' + '.join(truth['part']) or 'nothing'}, "
        f"cost {truth['cost']}, worth {truth['worth']})",
        failure=None if exact else "suboptimal",
    )


def certify(domain: Domain, scenario: Scenario) -> tuple[float, float]:
    """Worth of the oracle's part, and the greatest worth by the domain's second method."""
    return float(scenario.truth["worth"]), float(find_best_again(domain, read_question(scenario.facts)))


def call_tool(domain: Domain, style: Style, scenario: Scenario, call: ToolCall) -> str:
    """describe(option) or measure(option, part).

    Raises:
        ToolError: unknown tool, other arguments, another option, no such part.
    """
    expected = {"describe": {"option"}, "measure": {"option", "part"}}
    if call.name not in expected:
        raise ToolError("unknown tool; tools are describe measure")
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != expected[call.name]:
        raise ToolError(f"arguments must be exactly: {' '.join(sorted(expected[call.name]))}")
    question = read_question(scenario.facts)
    if call.arguments["option"] != question.option:
        raise ToolError(f"you are asked about option {question.option}")
    if call.name == "describe":
        return describe_option(domain, question, style)
    choice = read_choice(domain, question, style, call.arguments["part"])
    if choice is None:
        names = ", ".join(question.structure["upgrades"])
        raise ToolError(f"part must list upgrades that can be bought together, out of: {names}")
    part = next(part for part in list_parts(domain, question) if part.choice == choice)
    return write_measured(domain, part, style)


def build_part_family(domain: Domain, style: Style) -> Family:
    """The part family of a domain with its texts in one style.

    Example: build_part_family(DOMAINS["risk"], "full").generate("train", seed=0, index=7, difficulty=2)
    """

    def bind(play: Callable[[Domain, Scenario, random.Random], str]) -> Callable[..., str]:
        return lambda scenario, rng: play(domain, scenario, rng)

    def show(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
        return demonstrate(domain, read_question(scenario.facts), style)

    return Family(
        name=domain.seat,
        role=domain.seat,
        generate=lambda split, seed, index, difficulty: generate(
            domain, style, split, seed, index, difficulty
        ),
        verify=lambda scenario, text: verify(domain, style, scenario, text),
        solve=solve,
        certify=lambda scenario: certify(domain, scenario),
        call_tool=lambda scenario, call: call_tool(domain, style, scenario, call),
        demonstrate=show,
        baselines={
            "random": bind(answer_randomly),
            "constant": bind(answer_nothing),
            "greedy": bind(answer_greedily),
            "honest": bind(answer_honestly),
        },
        max_calls=MAX_CALLS,
        find_sector=find_sector,
    )
