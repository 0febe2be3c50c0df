"""Shared by the whole jobs: how a case is drawn, how an answer and a call are read and judged.

A job draws candidates until one has a single best answer that its expert reaches in a stated number of
steps. Money is in k$ a year. Everything that an answer depends on stands in the brief or the mandate.
"""

import heapq
import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from pydantic import ValidationError

from roles.base import Answer, AnswerError, Role, Tool, parse_answer, say_fault
from roles.limits import ANSWER_RULES, TOOL_RULES
from scenarios.base import (
    Family,
    Scenario,
    Split,
    Step,
    ToolCall,
    ToolError,
    Verdict,
    check_coordinates,
    rejected,
    scenario_rng,
)
from scenarios.company.sectors import Sector, draw_sector, draw_wording
from scenarios.company.splits import belongs_to
from scenarios.jobs.from_words import READERS

MAX_TRIES = 2000
SETTLE_TRIES = 6
MAX_CALLS = 40  # of tools in one case
LIMITS_SHARE = 0.1  # of the reward, for the limits that an answer keeps
# of the cases in which no answer keeps all limits, by difficulty
ESCALATION_SHARES = (0.08, 0.08, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
TRAP_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)  # by difficulty, of the other cases:
# those in which the rule of thumb is not optimal

Facts = Mapping[str, Any]
Draft = dict[str, Any]  # facts whose limits are not set yet
Truth = Mapping[str, Any]
T = TypeVar("T")


class NoCaseError(Exception):
    """A candidate that is no case: no single best answer, or too long a way to it."""


def build_family(
    role: Role,
    arguments: type[Answer],
    *,
    draw: Callable[[random.Random, Sector, int], Draft],
    settle: Callable[[Draft, int, bool, random.Random], tuple[Truth, int]],
    write_brief: Callable[[Facts], str],
    find_mistake: Callable[[Facts, Any], str],
    judge: Callable[[Facts, Truth, Any], Verdict],
    claim: Callable[[Truth], float],
    observe: Callable[[Facts, Any], str],
    demonstrate: Callable[[Scenario], tuple[list[Step], str]],
    follow_rule: Callable[[Facts], dict[str, Any]],
    answer_randomly: Callable[[Facts, random.Random], dict[str, Any]],
    constant: Mapping[str, Any],
    escalates_by: Mapping[str, Any] | None,
    answer_greedily: Callable[[Facts], dict[str, Any]] | None = None,
) -> Family:
    """The family of a whole job; it has the name of its role, who has one tool with these `arguments`.

    `draw(rng, sector, difficulty)` makes a candidate. `settle(facts, difficulty, escalates, rng)` sets its
    limits and returns its truth and the tool calls of its demonstration, or raises NoCaseError; it is tried
    SETTLE_TRIES times on a candidate. `follow_rule(facts)` is the answer by the family's rule of thumb; it is
    wrong in TRAP_SHARES of the cases that do not escalate. `find_mistake` names what an answer or a call says
    of things that the case does not have, "" for nothing; `judge` and `observe` see only what has no mistake.
    `demonstrate` returns the steps that call the tool, and what is said before the answer. `claim(truth)` is
    the number that the solver of the words (`from_words`) must find, too.

    `escalates_by` is the answer that hands a case over: right where it is the truth, worth nothing elsewhere;
    None where `judge` decides. `constant` and `answer_greedily` (by default the rule) are baselines.
    """
    name, (tool,), schema = role.name, role.tools, role.answer

    def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        """One case; a pure function of its coordinates.

        Raises:
            ValueError: coordinates out of range.
            RuntimeError: no case in MAX_TRIES candidates.
        """
        check_coordinates(split, seed, index, difficulty)
        rng = scenario_rng(name, split, seed, index, difficulty)
        escalates = rng.random() < ESCALATION_SHARES[difficulty - 1]
        is_trap = rng.random() < TRAP_SHARES[difficulty - 1]
        for _ in range(MAX_TRIES):
            sector = draw_sector(rng, split)
            company, wording = rng.choice(sector.companies), draw_wording(rng, split)
            situation = rng.choice(sector.situations).replace("{company}", company)
            facts: Draft = {"sector": sector.name, "company": company, "situation": situation}
            facts |= {"wording": wording, "system": sector.systems[0]}
            facts |= draw(rng, sector, difficulty)
            if not belongs_to(split, [facts]):
                continue
            for _ in range(SETTLE_TRIES):
                try:
                    truth, num_calls = settle(facts, difficulty, escalates, rng)
                except NoCaseError:
                    continue
                by_rule = follow_rule(facts)
                is_right = all(truth[key] == value for key, value in by_rule.items())
                if not escalates and is_trap == is_right:
                    continue
                return Scenario(
                    family=name,
                    split=split,
                    seed=seed,
                    index=index,
                    difficulty=difficulty,
                    role=name,
                    brief=write_brief(facts),
                    facts=facts,
                    truth=truth,
                    optimal_tool_calls=num_calls,
                )
        raise RuntimeError(f"no {name} case of difficulty {difficulty} in {MAX_TRIES} candidates")

    def solve(scenario: Scenario) -> dict[str, Any]:
        """The oracle's answer."""
        return {key: scenario.truth[key] for key in schema.model_fields}

    def verify(scenario: Scenario, text: str) -> Verdict:
        """Reward as the family's `judge` says; 0 for a malformed answer and a needless escalation."""
        try:
            answer = parse_answer(text, schema)
        except AnswerError as error:
            return rejected(error.failure, str(error))
        if answer.model_dump() == escalates_by:
            right = solve(scenario)
            if right == escalates_by:
                says = "nothing keeps every limit"
                return Verdict(
                    reward=1.0, parts={"escalation": 1.0}, exact=True, feasible=True, explanation=says
                )
            return rejected("infeasible", f"something keeps every limit: {json.dumps(right)}")
        mistake = find_mistake(scenario.facts, answer)
        if mistake:
            return rejected("unknown_id", mistake)
        return judge(scenario.facts, scenario.truth, answer)

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        """The observation of the job's one tool.

        Raises:
            ToolError: another tool, other arguments, or things that the case does not have.
        """
        if call.name != tool.name:
            raise ToolError(f"unknown tool; tools are {tool.name}")
        try:
            stated = arguments.model_validate(call.arguments, strict=True)
        except ValidationError as error:
            names = " ".join(arguments.model_fields)
            raise ToolError(f"arguments must be exactly: {names} ({say_fault(error)})") from None
        mistake = find_mistake(scenario.facts, stated)
        if mistake:
            raise ToolError(mistake)
        return observe(scenario.facts, stated)

    def play(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
        steps, words = demonstrate(scenario)
        return (*steps, Step(text=f"{words}\n{json.dumps(solve(scenario))}"))

    greedy = answer_greedily or follow_rule
    return Family(
        name=name,
        role=name,
        generate=generate,
        verify=verify,
        solve=solve,
        certify=lambda scenario: (float(claim(scenario.truth)), float(READERS[name](scenario.brief)[1])),
        call_tool=call_tool,
        demonstrate=play,
        baselines={
            "random": lambda scenario, rng: json.dumps(answer_randomly(scenario.facts, rng)),
            "constant": lambda scenario, rng: json.dumps(constant),
            "greedy": lambda scenario, rng: json.dumps(greedy(scenario.facts)),
        },
        max_calls=MAX_CALLS,
        find_sector=lambda *where: str(generate(*where).facts["sector"]),
        infeasible_reward=LIMITS_SHARE,
    )


Wordings = tuple[str, ...]  # templates of one sentence, by the number of the wording


def combine_by_cost(choices: Sequence[Sequence[tuple[int, T]]]) -> Iterator[tuple[int, tuple[T, ...]]]:
    """Every way to take one of each of the choices, cheapest first; ties by the places that are taken.

    Each choice lists (cost, what it is) by rising cost. There is no way where a choice is empty.

    Example: list(combine_by_cost([[(1, "a"), (3, "b")], [(2, "c")]])) == [(3, ("a", "c")), (5, ("b", "c"))]
    """
    if not all(choices):
        return
    heap = [(sum(options[0][0] for options in choices), (0,) * len(choices), 0)]
    while heap:
        cost, picks, first = heapq.heappop(heap)
        yield cost, tuple(options[pick][1] for options, pick in zip(choices, picks, strict=True))
        for place in range(first, len(picks)):  # each way is reached by moving on in one order
            options, pick = choices[place], picks[place]
            if pick + 1 < len(options):
                more = (*picks[:place], pick + 1, *picks[place + 1 :])
                heapq.heappush(heap, (cost + options[pick + 1][0] - options[pick][0], more, place))


def accept(
    kept: Mapping[str, bool],
    graded: Mapping[str, float],
    weights: Mapping[str, float],
    exact: bool,
    says: str,
) -> Verdict:
    """The verdict on an answer that keeps all limits: LIMITS_SHARE + weighted grades + the rest if exact."""
    reward = LIMITS_SHARE + sum(weights[name] * value for name, value in graded.items())
    return Verdict(
        reward=1.0 if exact else round(reward, 9),
        parts={**dict.fromkeys(kept, 1.0), **graded},
        exact=exact,
        feasible=True,
        explanation=says,
        failure=None if exact else "suboptimal",
    )


def refuse_limits(kept: Mapping[str, bool], says: str = "", **graded: float) -> Verdict:
    """The verdict on an answer that breaks limits: LIMITS_SHARE times the mean of limits kept and grades.

    Without a word on it the explanation names the limits that are broken.
    """
    parts = {name: float(value) for name, value in kept.items()} | graded
    return Verdict(
        reward=round(LIMITS_SHARE * sum(parts.values()) / len(parts), 9),
        parts=parts,
        exact=False,
        feasible=False,
        explanation=says or f"breaks {join_broken(kept)}",
        failure="infeasible",
    )


def join_broken(kept: Mapping[str, bool]) -> str:
    """Names of the limits that are broken, at least one, in words."""
    return join_words([name for name, is_kept in kept.items() if not is_kept])


def score_named(named: Set[T], real: Set[T], num_possible: int) -> float:
    """F1 of what was named, above that of naming everything that is possible (0).

    Example: score_named({1}, {1, 2}, 6) == (2 / 3 - 1 / 2) / (1 / 2)
    """
    if named == real:
        return 1.0
    everything = 2 * len(real) / (num_possible + len(real))
    if not real or everything == 1:
        return 0.0
    f1 = 2 * len(named & real) / (len(named) + len(real))
    return max(0.0, (f1 - everything) / (1 - everything))


def make_tool(name: str, description: str, arguments: type[Answer]) -> Tool:
    """The tool whose arguments are the fields of a schema."""
    whole = arguments.model_json_schema()

    def tidy(told: Mapping[str, Any]) -> dict[str, Any]:
        schema = whole["$defs"][told["$ref"].rpartition("/")[2]] if "$ref" in told else told
        if "properties" in schema:
            properties = {field: tidy(one) for field, one in schema["properties"].items()}
            rest = {"required": list(properties), "additionalProperties": False}
            return {"type": "object", "properties": properties, **rest}
        kept = {key: schema[key] for key in ("type", "description") if key in schema}
        inner = {key: tidy(schema[key]) for key in ("items", "additionalProperties") if key in schema}
        return kept | inner

    return Tool(name=name, description=description, parameters=tidy(whole))


def make_job_role(
    name: str, title: str, mandate: Sequence[str], answer: type[Any], tools: tuple[Tool, ...], letter: str
) -> Role:
    """The role of a whole job: its mandate is one paragraph per entry, the last one the answer's form."""
    *task, form = mandate
    text = "\n".join([*task, TOOL_RULES, ANSWER_RULES, form])
    return Role(name=name, title=title, mandate=text, answer=answer, tools=tools, letter=letter)


def join_words(words: Collection[str]) -> str:
    """Example: join_words(["a", "b", "c"]) == "a, b and c" """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
