"""Family search_calculate: a figure that stands nowhere, from several records and one calculation.

The player searches for the names that the question is about, reads their figures, follows a chain of
relations to a percentage (from the fifth difficulty on), and calculates. Splits share no question.
"""

import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from roles.base import Tool
from scenarios.base import Scenario, Split, Step, ToolCall, ToolError, check_coordinates, scenario_rng
from scenarios.company.splits import belongs_to
from scenarios.tasks import lookup
from scenarios.tasks.grading.arithmetic import CALCULATOR, call_calculator, format_number
from scenarios.tasks.lookup import build_records, find_names, join, say_chain, walk
from scenarios.tasks.solver import ToolFunction, build_task_family, make_solver, read_text_arguments

NUM_PRODUCTS = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4)  # by difficulty 1-10
FORMULAS = ("sales", "margin", "sales", "margin", "margin", "sales", "margin", "kept", "margin", "kept")
PATHS: tuple[tuple[str, ...], ...] = (
    *((), (), (), ()),
    *(("main_supplier",), ("main_supplier",), ("main_supplier",)),
    *(("made_at", "city"), ("main_supplier", "headquarters"), ("made_at", "city")),
)
NUM_LINES = (2, 2, 3, 3, 4, 4, 5, 6, 7, 8)
MAX_TRIES = 1000
SAID = {
    "sales": "price times units a month",
    "margin": "price less unit cost, times units a month",
    "kept": "price less unit cost, times units a month, less that product's returns in percent",
}
RATE = {"supplier": "rebate", "city": "levy"}  # the percentage of what a chain ends at

ROLE = make_solver(
    "search_calculate",
    "You answer questions about a company's figures. Find names with search, read numbers with figures, "
    "follow relations with lookup, and work out the result with the calculator; call several tools at once "
    "where none needs the other's result. Prices and costs are in k$. Answer with the exact number alone.",
    (
        *lookup.ROLE.tools,
        Tool(
            name="figures",
            description="All numbers of one entity.",
            parameters={
                "type": "object",
                "properties": {"entity": {"type": "string", "description": "full name"}},
                "required": ["entity"],
                "additionalProperties": False,
            },
        ),
        CALCULATOR,
    ),
)


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One question; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("search_calculate", split, seed, index, difficulty)
    count, formula = NUM_PRODUCTS[difficulty - 1], FORMULAS[difficulty - 1]
    path = PATHS[difficulty - 1]
    for _ in range(MAX_TRIES):
        records = build_records(rng, num_lines=NUM_LINES[difficulty - 1], num_people=24)
        line = rng.choice(sorted({name.split()[0] for name in records if "made_at" in records[name]}))
        products = find_names(records, f"{line} ")
        chosen = products[:count] if count > 1 else [rng.choice(products)]
        for extra in products:
            if count > 1 and extra not in chosen:
                del records[extra]
        start, rise = rng.choice(chosen), rng.randint(1, 40)
        brief = _write_brief(line, chosen, start, formula, path, rise)
        if belongs_to(split, [brief]):
            break
    else:
        raise RuntimeError(f"no search_calculate scenario in {MAX_TRIES} tries")
    facts = {
        "records": records,
        "figures": _draw_figures(rng, records),
        "line": line,
        "products": chosen,
        "start": start,
        "formula": formula,
        "path": list(path),
        "rise": rise,
    }
    return Scenario(
        family="search_calculate",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=ROLE.name,
        brief=brief,
        facts=facts,
        truth={"answer": format_number(_compute(facts))},
        optimal_tool_calls=(count > 1) + count + (len(path) + 1 if path else 0) + 1,
    )


def _write_brief(
    line: str, chosen: Sequence[str], start: str, formula: str, path: Sequence[str], rise: int
) -> str:
    """The question; every rule that the number depends on stands in it."""
    subject = f"the {start}" if len(chosen) == 1 else f"all {line} products together"
    parts = [f"Every price is to rise by {rise} k$. Take {SAID[formula]}, for {subject}."]
    if path:
        rate = RATE["city" if len(path) == 2 else "supplier"]
        parts.append(f"Then take off the {rate}, in percent, of {say_chain(f'the {start}', path)}.")
    return " ".join([*parts, "How many k$ a month is that at the new price?"])


def _draw_figures(rng: random.Random, records: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Numbers of products, suppliers and cities; units in hundreds, so that no result has many decimals."""
    figures: dict[str, dict[str, int]] = {}
    for name, about in records.items():
        if "made_at" in about:
            cost = rng.randint(11, 60)
            figures[name] = {
                "price": cost + rng.randint(5, 40),
                "unit cost": cost,
                "units": 100 * rng.randint(3, 60),
                "returns": rng.randint(1, 9),
            }
        elif "headquarters" in about:
            figures[name] = {"rebate": rng.randint(2, 15), "delivery days": rng.randint(3, 30)}
        elif "country" in about:
            figures[name] = {"levy": rng.randint(1, 9), "offices": rng.randint(1, 12)}
    return figures


def _say_term(formula: str, figures: Mapping[str, int], rise: int) -> str:
    """One product's amount as the calculator reads it."""
    price, units = f"({figures['price']} + {rise})", figures["units"]
    if formula == "sales":
        return f"{price} * {units}"
    margin = f"({price} - {figures['unit cost']}) * {units}"
    return margin if formula == "margin" else f"{margin} * (1 - {figures['returns']}%)"


def _write_expression(facts: Mapping[str, Any]) -> str:
    """The whole calculation as text."""
    figures, rise = facts["figures"], facts["rise"]
    total = " + ".join(_say_term(facts["formula"], figures[name], rise) for name in facts["products"])
    if not facts["path"]:
        return total
    end = walk(facts["records"], facts["start"], facts["path"])
    return f"({total}) * (1 - {_find_rate(figures[end])}%)"


def _find_rate(figures: Mapping[str, int]) -> int:
    return next(figures[name] for name in RATE.values() if name in figures)


def _compute(facts: Mapping[str, Any]) -> Fraction:
    """The result in whole numbers and one division at the end."""
    total = 0  # in hundredths of a percent of a k$
    for name in facts["products"]:
        figures = facts["figures"][name]
        unit = figures["price"] + facts["rise"]
        if facts["formula"] != "sales":
            unit -= figures["unit cost"]
        kept = 100 - figures["returns"] if facts["formula"] == "kept" else 100
        total += unit * figures["units"] * kept
    end = walk(facts["records"], facts["start"], facts["path"])
    return Fraction(total * (100 - (_find_rate(facts["figures"][end]) if facts["path"] else 0)), 10_000)


def certify(scenario: Scenario) -> tuple[float, float]:
    """The oracle's number, and that of the written calculation over names found by search and by joins."""
    facts = scenario.facts
    found = find_names(facts["records"], f"{facts['line']} ")
    products = found if len(facts["products"]) > 1 else facts["products"]
    (end,) = join(facts["records"], [facts["start"]], facts["path"])
    named = {**facts, "products": products, "start": end, "path": []}
    text = _write_expression(named)
    if facts["path"]:
        text = f"({text}) - ({text}) * {_find_rate(facts['figures'][end])} / 100"
    return float(scenario.truth["answer"]), float(call_calculator({"expression": text}))


def list_tools(scenario: Scenario) -> dict[str, ToolFunction]:
    """The tools of `lookup`, figures(entity) and the calculator."""
    numbers = scenario.facts["figures"]

    def read_figures(arguments: Mapping[str, Any]) -> str:
        (entity,) = read_text_arguments(arguments, ("entity",))
        if entity not in numbers:
            raise ToolError("no figures of that name; search for a product's, supplier's or city's full name")
        return ", ".join(f"{name} {value}" for name, value in numbers[entity].items())

    return {**lookup.list_tools(scenario), "figures": read_figures, "calculator": call_calculator}


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Search where products are not named, read figures, follow the chain before or after, calculate."""
    facts = scenario.facts
    opening = [_call("search", text=facts["line"])] if len(facts["products"]) > 1 else []
    products = [_call("figures", entity=name) for name in facts["products"]]
    chain, name = [], facts["start"]
    for relation in facts["path"]:
        chain.append(_call("lookup", entity=name, relation=relation))
        name = facts["records"][name][relation]
    chain += [_call("figures", entity=name)] if facts["path"] else []
    order = [*products, *chain] if rng.random() < 0.5 or not opening else [*chain, *products]
    expression = _write_expression(facts)
    value = call_calculator({"expression": expression})
    answer = Step(text=f"{value} k$ a month.\n{json.dumps({'answer': scenario.truth['answer']})}")
    return (*opening, *order, _call("calculator", expression=expression), answer)


def _call(name: str, **arguments: str) -> Step:
    return Step(text="", call=ToolCall(name=name, arguments=arguments))


def answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    """The oracle's number of digits, at random."""
    return str(rng.randint(1, 10 ** len(scenario.truth["answer"].split(".")[0])))


def answer_greedily(scenario: Scenario, _rng: random.Random) -> str:
    """Reads the first product alone, at its new price, and follows no chain."""
    facts = {**scenario.facts, "products": scenario.facts["products"][:1], "path": []}
    return format_number(_compute(facts))


FAMILY = build_task_family(
    ROLE,
    kind="number",
    generate=generate,
    certify=certify,
    list_tools=list_tools,
    demonstrate=demonstrate,
    baselines={
        "random": answer_randomly,
        "constant": lambda _scenario, _rng: "100000",
        "greedy": answer_greedily,
    },
)
