"""The part families: the best part of a plan on one option that an amount of money pays for, over any domain.

Asked: which upgrades, what they cost, what they are worth. Right is the part of the greatest worth that costs
at most the amount and keeps the seat's hard limit; of equal worth the cheaper. Rules stand in `roles`, their
arithmetic in the seat's domain, which certifies every figure by its second method.

No demonstration uses more than the expert has read by then. A search measures parts and compares the cost of
each with the amount and its worth with the best so far. Where parts are many, a reckoning applies the rules
to the described structure to find which are worth measuring, and states no figure that was not measured. In
short style the tool describe lists the efficient parts, and the dearest within the amount is taken.
"""

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, assert_never

from roles.base import AnswerError, parse_answer
from roles.part import MAX_CALLS, PartAnswer
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, ToolError, Verdict, rejected
from scenarios.company.comparison import beats, compare_in_words
from scenarios.company.domain import Choice, Domain, Terms, price_parts, write_terms
from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.records import Part
from scenarios.company.setting import draw_setting, draw_structure, find_sector
from scenarios.company.splits import belongs_to
from scenarios.company.steps import name_code, write_figures, write_parts
from scenarios.headroom import blind_baseline, share_of_room

MAX_TRIES = 300
BOUND_FROM = 3  # first difficulty whose questions are drawn so that the limit decides
BOUND_SHARE = 0.18  # of the questions: without the limit another part would be the best
MOST_BOUND_TRIES = 100  # after these any question will do
LEAST_AFFORDABLE = (3, 3, 7, 8, 8, 8, 9, 10, 12, 14)  # parts to choose among, by difficulty 1-10
MOST_MEASURED = 8  # parts that a search measures; where there are more, reckoning is shown
NUM_CANDIDATES = 3  # that a reckoning names
WORDINGS = (  # by wording, the lines of a full brief
    (
        "{situation} Option {option} is: {name}.",
        "{terms}",
        "Upgrades on offer, with their cost in k$ a month: {offered}.",
        "Which part is best on option {option} for at most {amount} k$ a month?",
    ),
    (
        "{situation} It may choose option {option}: {name}.",
        "What can be bought for it, at a cost in k$ a month: {offered}.",
        "{terms}",
        "You may spend up to {amount} k$ a month on option {option}. Choose the best part.",
    ),
    (
        "{situation}",
        "Suppose that it takes option {option}, {name}.",
        "{terms}",
        "Price list of the upgrades, in k$ a month: {offered}.",
        "The table leaves you no more than {amount} k$ a month for option {option}. What do you buy?",
    ),
    (
        "{situation}",
        "Its option {option}: {name}.",
        "{terms}",
        "With no more than {amount} k$ a month for option {option}, find the part that is worth most.",
        "On offer, each with its cost in k$ a month: {offered}.",
    ),
    (
        "{situation} You look at option {option} and nothing else: {name}.",
        "Upgrades, priced in k$ a month: {offered}.",
        "Not more than {amount} k$ a month may go into option {option}.",
        "{terms}",
        "Name the part that you want.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartQuestion:
    """A part question as its facts state it.

    Example: read_question(DOMAINS["risk"], scenario.facts).amount == 30
    """

    domain: Domain
    option: str
    amount: int
    structure: Mapping[str, Any]
    terms: Terms
    parts: tuple[Part, ...]  # all that can be bought, () first

    @property
    def within(self) -> list[Part]:
        """The parts within the amount that keep the limit."""
        return list_affordable(self.parts, self.amount)

    @property
    def best(self) -> Part:
        """The part of the greatest worth within the amount that keeps the limit; of equals the cheapest."""
        best = take_within(list_efficient(self.parts), self.amount)
        assert best is not None  # an amount pays for the cheapest part
        return best

    @property
    def codes(self) -> dict[str, Part]:
        """Code -> efficient part that buys something, as short texts list them."""
        efficient = [part for part in list_efficient(self.parts) if part.choice]
        return {name_code(number): part for number, part in enumerate(efficient)}


def read_question(domain: Domain, facts: Mapping[str, Any]) -> PartQuestion:
    """The question that the facts hold."""
    terms = Terms(rates=facts["rates"], limits=facts["limits"])
    return PartQuestion(
        domain=domain,
        option=facts["option"],
        amount=facts["amount"],
        structure=facts["structure"],
        terms=terms,
        parts=price_parts(domain, facts["structure"], terms, facts["option"]),
    )


def draw_question(
    domain: Domain, split: Split, seed: int, index: int, difficulty: int
) -> tuple[dict[str, Any], PartQuestion]:
    """One question on an option of the company case of the same coordinates, and its facts as JSON values."""
    setting = draw_setting(split, seed, index, difficulty)
    rng = random.Random(f"part/{domain.seat}/{setting.key}")
    terms = setting.terms[domain.seat]
    least = LEAST_AFFORDABLE[difficulty - 1]
    wants_bound = difficulty >= BOUND_FROM and rng.random() < BOUND_SHARE
    for attempt in range(MAX_TRIES):
        is_bound = wants_bound and attempt < MOST_BOUND_TRIES
        option = rng.choice(list(setting.names))
        structure, parts = draw_structure(
            setting, domain.seat, option, attempt, "need" if is_bound else "as set"
        )
        efficient = list_efficient(parts)
        unbound = list_efficient(parts, keeping=False) if is_bound else []
        if is_bound and efficient == unbound:
            continue
        costs = [upgrade["cost"] for upgrade in structure["upgrades"].values()]
        shown_in_full = [setting.drawn_sector, setting.drawn_names[option], costs]
        shown_in_short = [[part.cost, part.worth] for part in efficient if part.choice]
        amounts = [
            amount
            for amount in range(efficient[1].cost, efficient[-1].cost + 1)
            if len(list_affordable(parts, amount, keeping=not is_bound)) >= least
            and not (is_bound and take_within(efficient, amount) is take_within(unbound, amount))
            and belongs_to(split, [amount, shown_in_full])
            and belongs_to(split, [amount, shown_in_short])
        ]
        if amounts:
            facts: dict[str, Any] = {
                "sector": setting.sector.name,
                "situation": setting.situation,
                "wording": setting.wording,
                "option": option,
                "name": setting.names[option],
                "amount": rng.choice(amounts),
                "structure": structure,
                "rates": dict(terms.rates),
                "limits": dict(terms.limits),
            }
            question = PartQuestion(
                domain=domain,
                option=option,
                amount=facts["amount"],
                structure=structure,
                terms=terms,
                parts=parts,
            )
            return facts, question
    raise RuntimeError(f"no question for {domain.seat} on {setting.key} in {MAX_TRIES} draws")


def list_affordable(parts: Sequence[Part], amount: int, keeping: bool = True) -> list[Part]:
    """The parts within the amount that keep the limit, without `keeping` those that break it, too."""
    return [part for part in parts if part.cost <= amount and (part.keeps_limit or not keeping)]


def read_choice(question: PartQuestion, style: Style, names: object) -> Part | None:
    """The part of these names; None where they are none: unknown, repeated or not bought together.

    In short style, which shows codes, a single name may be the code of an efficient part.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    same_size = (part for part in question.parts if len(part.choice) == len(names))
    found = next((part for part in same_size if set(part.choice) == set(names)), None)
    is_code = found is None and style == "short" and len(names) == 1
    return question.codes.get(names[0]) if is_code else found


def find_best_again(question: PartQuestion) -> int:
    """The best worth within the amount by the domain's second method, over all choices."""
    domain, structure, terms = question.domain, question.structure, question.terms
    before = domain.value(terms, domain.measure_again(structure, ())[1])
    found = []
    for choice in domain.list_choices(structure):
        cost, figures = domain.measure_again(structure, choice)
        if cost <= question.amount and domain.keeps_limit(terms, figures):
            found.append(domain.value(terms, figures) - before)
    return max(found)


def write_brief(question: PartQuestion, facts: Mapping[str, Any], style: Style) -> str:
    """The user message: the case, its terms, what can be bought, the question."""
    if style == "short":
        return f"Option {question.option}. Amount {question.amount}."
    if style != "full":
        assert_never(style)
    offered = question.domain.write_upgrades(question.structure)
    return "\n".join(WORDINGS[facts["wording"]]).format(
        situation=facts["situation"],
        option=question.option,
        name=facts["name"],
        amount=question.amount,
        offered=offered,
        terms=write_terms(question.domain, question.terms, facts["wording"], [question.structure]),
    )


def write_measured(domain: Domain, part: Part, style: Style) -> str:
    """The observation of the tool measure."""
    if style == "short":
        return write_figures(part)
    if style != "full":
        assert_never(style)
    limit = "hard limit holds" if part.keeps_limit else "hard limit BREAKS"
    return f"{domain.write_figures(part.figures)}; cost {part.cost}, worth {part.worth}; {limit}"


def describe_option(question: PartQuestion, style: Style) -> str:
    """The observation of the tool describe: the whole structure, or in short style the efficient parts alone.

    Example (short): "F 6 5, G 15 10"
    """
    if style == "full":
        return question.domain.describe(question.structure)
    return write_parts(question.codes)


def answer_of(part: Part) -> dict[str, Any]:
    """The part as an answer object."""
    return {"part": list(part.choice), "cost": part.cost, "worth": part.worth}


def _name(part: Part) -> str:
    return " + ".join(part.choice) if part.choice else "nothing"


def measure(option: str, names: Sequence[str], text: str) -> Step:
    """A call of measure for the part of these upgrades, after the text."""
    return Step(text=text, call=ToolCall(name="measure", arguments={"option": option, "part": list(names)}))


def list_searched(parts: Sequence[Part], amount: int) -> list[Part]:
    """Parts that a search measures, few upgrades first: those within the amount, and what such can make.

    None where they are more than MOST_MEASURED.
    """
    within = {frozenset(part.choice) for part in parts if part.cost <= amount}
    possible = {frozenset(part.choice) for part in parts}

    def is_searched(part: Part) -> bool:
        choice = frozenset(part.choice)
        smaller = {choice - {name} for name in choice}
        return choice in within or smaller & possible <= within

    searched = [part for part in parts if part.choice and is_searched(part)]
    return sorted(searched, key=lambda part: len(part.choice)) if len(searched) <= MOST_MEASURED else []


def _compare(part: Part, best: Part | None, amount: int) -> tuple[str, Part | None]:
    """Return what is said of a part that was measured, and the best one then."""
    if part.cost > amount:
        return f"cost {part.cost} of {amount}: over", best
    within = f"cost {part.cost} of {amount}: fits"
    if not part.keeps_limit:
        return f"{within}, breaks the limit", best
    if best is None:
        return within, part
    return f"{within}, {compare_in_words(part, best)}", part if beats(part, best) else best


def search_option(
    option: str,
    amount: int,
    searched: Sequence[Part],
    lead: str = "",
    known: Collection[Sequence[str]] = (),
) -> tuple[tuple[Step, ...], str, Part | None]:
    """Measure single upgrades, then what can be made of those that fit; keep the best so far.

    `lead` is said before the first measurement; parts that are `known` by their upgrades were measured before
    and are compared by name. Returns: the steps, what is said after the last one, the best part; None where
    none fits and keeps the limit.
    """
    steps: list[Step] = []
    best: Part | None = None
    text = lead and f"{lead}\n"
    for part in searched:
        if part.choice in known:
            text += f"{_name(part)}: "
        else:
            steps.append(measure(option, part.choice, text.removesuffix("\n")))
            text = ""
        said, after = _compare(part, best, amount)
        if after is not None and after is not best:
            said, best = f"{said}, best {_name(after)} {after.worth}", after
        text += f"{said}\n"
    return tuple(steps), text.removesuffix("\n"), best


def search(question: PartQuestion, searched: Sequence[Part]) -> tuple[Step, ...]:
    """The search, and the best part as the answer."""
    steps, text, best = search_option(question.option, question.amount, searched)
    assert best is not None  # an amount buys more worth than nothing has
    return (*steps, Step(text=f"{text}\n{json.dumps(answer_of(best))}"))


def reckon(question: PartQuestion) -> tuple[Step, ...]:
    """Reads the description, names the best parts by the rules, has them measured and compares them."""
    best_part = question.best
    ranked = sorted(question.within, key=lambda part: (-part.worth, part.cost, part is not best_part))
    candidates = [part for part in ranked if part.choice][:NUM_CANDIDATES]
    named = "; ".join(map(_name, candidates))
    describe = Step(text="", call=ToolCall(name="describe", arguments={"option": question.option}))
    lead = f"By the rules, for at most {question.amount}: {named}."
    steps, text, best = search_option(question.option, question.amount, candidates, lead)
    assert best is not None  # the best part is the first that is measured
    return (describe, *steps, Step(text=f"{text}\n{json.dumps(answer_of(best))}"))


def look_up(question: PartQuestion) -> tuple[Step, ...]:
    """Has the efficient parts listed and takes the dearest within the amount, by its code."""
    describe = ToolCall(name="describe", arguments={"option": question.option})
    within = [item for item in question.codes.items() if item[1].cost <= question.amount]
    code, best = within[-1]
    return (Step(text="", call=describe), Step(text=json.dumps({**answer_of(best), "part": [code]})))


def demonstrate(question: PartQuestion, style: Style) -> tuple[Step, ...]:
    """A search where parts are few, else a reckoning; in short style the efficient parts are looked up."""
    if style == "short":
        return look_up(question)
    searched = list_searched(question.parts, question.amount)
    return search(question, searched) if searched else reckon(question)


def count_most_calls(question: PartQuestion, style: Style) -> int:
    """Tool calls of the demonstration, and two at least in full style: a look and a measurement."""
    num_calls = len(demonstrate(question, style)) - 1
    return num_calls if style == "short" else max(2, num_calls)


def answer_randomly(question: PartQuestion, rng: random.Random) -> str:
    """Any part within the amount, any figures."""
    within = [part.choice for part in question.parts if part.cost <= question.amount]
    guess = {"cost": rng.randint(3, 30), "worth": rng.randint(3, 40)}
    return json.dumps({"part": list(rng.choice(within)), **guess})


def answer_nothing(_question: PartQuestion, _rng: random.Random) -> str:
    """Buys nothing: the one part whose figures are the same in every case."""
    return json.dumps({"part": [], "cost": 0, "worth": 0})


def _add_by_return(parts: Sequence[Part], amount: int, start: Choice) -> Part:
    by_choice = {frozenset(part.choice): part for part in parts}
    singles = [part for part in parts if len(part.choice) == 1]
    taken = frozenset(start)
    for single in sorted(singles, key=lambda part: -Fraction(part.worth, max(1, part.cost))):
        grown = by_choice.get(taken | set(single.choice))
        if grown is not None and single.worth > 0 and grown.cost <= amount:
            taken |= set(single.choice)
    return by_choice[taken]


def answer_greedily(question: PartQuestion, _rng: random.Random) -> str:
    """Add the upgrades of the highest single return per k$ while the money lasts; ignore the limit."""
    return json.dumps(answer_of(_add_by_return(question.parts, question.amount, ())))


def answer_honestly(question: PartQuestion, _rng: random.Random) -> str:
    """Begins with the cheapest part that keeps the limit, then adds as the greedy policy does."""
    start = min((part for part in question.parts if part.keeps_limit), key=lambda part: part.cost)
    part = _add_by_return(question.parts, question.amount, start.choice)
    return json.dumps(answer_of(part if part.keeps_limit else start))


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {key: scenario.truth[key] for key in ("part", "cost", "worth")}


def build_part_family(domain: Domain, style: Style) -> Family:
    """The part family of a domain with its texts in one style.

    Example: build_part_family(DOMAINS["risk"], "full").generate("train", seed=0, index=7, difficulty=2)
    """

    def read(scenario: Scenario) -> PartQuestion:
        return read_question(domain, scenario.facts)

    def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        """One scenario; a pure function of its coordinates.

        Raises:
            ValueError: coordinates out of range.
        """
        facts, question = draw_question(domain, split, seed, index, difficulty)
        worths = [part.worth for part in question.within]
        return Scenario(
            family=domain.seat,
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            role=domain.seat,
            brief=write_brief(question, facts, style),
            facts=facts,
            truth={**answer_of(question.best), "blind": list(blind_baseline(worths, difficulty))},
            optimal_tool_calls=count_most_calls(question, style),
        )

    def verify(scenario: Scenario, text: str) -> Verdict:
        """Reward 0.6 head-room over a blind choice + 0.3 best part + 0.1 figures right.

        A part that is over the amount, breaks the limit or is no better than a blind choice gets 0.
        """
        try:
            answer = parse_answer(text, PartAnswer)
        except AnswerError as error:
            return rejected(error.failure, str(error))
        question, truth = read(scenario), scenario.truth
        part = read_choice(question, style, answer.part)
        if part is None:
            return rejected("unknown_id", f"no such part: {', '.join(answer.part)[:200]}")
        if part.cost > question.amount:
            return rejected("infeasible", f"cost {part.cost} is over the amount {question.amount}")
        if not part.keeps_limit:
            return rejected("infeasible", f"breaks the hard limit: {domain.write_figures(part.figures)}")
        exact = list(part.choice) == truth["part"]
        numerator, denominator = truth["blind"]
        graded = share_of_room(part.worth, truth["worth"], (numerator, denominator))
        right = ((answer.cost == part.cost) + (answer.worth == part.worth)) / 2 if graded else 0.0
        return Verdict(
            reward=(6 * graded + 3 * exact + right) / 10,
            parts={"graded": graded, "exact": float(exact), "figures": right},
            exact=exact,
            feasible=True,
            explanation=f"cost {part.cost}, worth {part.worth} (best: "
            f"{' + '.join(truth['part']) or 'nothing'}, cost {truth['cost']}, worth {truth['worth']})",
            failure=None if exact else "suboptimal",
        )

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        """describe(option) or measure(option, part).

        Raises:
            ToolError: unknown tool, other arguments, another option, no such part.
        """
        expected = {"describe": {"option"}, "measure": {"option", "part"}}
        if call.name not in expected:
            raise ToolError("unknown tool; tools are describe measure")
        if not isinstance(call.arguments, Mapping) or set(call.arguments) != expected[call.name]:
            raise ToolError(f"arguments must be exactly: {' '.join(sorted(expected[call.name]))}")
        question = read(scenario)
        if call.arguments["option"] != question.option:
            raise ToolError(f"you are asked about option {question.option}")
        if call.name == "describe":
            return describe_option(question, style)
        part = read_choice(question, style, call.arguments["part"])
        if part is None:
            names = ", ".join(question.structure["upgrades"])
            raise ToolError(f"part must list upgrades that can be bought together, out of: {names}")
        return write_measured(domain, part, style)

    def bind(play: Callable[[PartQuestion, random.Random], str]) -> Callable[[Scenario, random.Random], str]:
        return lambda scenario, rng: play(read(scenario), rng)

    return Family(
        name=domain.seat,
        role=domain.seat,
        generate=generate,
        verify=verify,
        solve=solve,
        certify=lambda scenario: (float(scenario.truth["worth"]), float(find_best_again(read(scenario)))),
        call_tool=call_tool,
        demonstrate=lambda scenario, _rng: demonstrate(read(scenario), style),
        baselines={
            "random": bind(answer_randomly),
            "constant": bind(answer_nothing),
            "greedy": bind(answer_greedily),
            "honest": bind(answer_honestly),
        },
        max_calls=MAX_CALLS,
        find_sector=find_sector,
    )
