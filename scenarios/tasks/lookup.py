"""Family lookup: questions over a company's records that take two to four look-ups in a row.

At low difficulty the first entity is named; then it is only described ("the Falcon product made at ..."), and
search gives several candidates of which one fits. The answer is one name: right or wrong.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roles.base import Tool
from scenarios.base import (
    Family,
    Scenario,
    Split,
    Step,
    ToolCall,
    ToolError,
    Verdict,
    check_coordinates,
    scenario_rng,
)
from scenarios.tasks.grading.text_checks import Check
from scenarios.tasks.knowledge_base import (
    RELATIONS,
    Records,
    build_records,
    find_names,
    join,
    say_chain,
    walk,
)
from scenarios.tasks.solver import call_one_of, judge_answer, make_solver, read_text_arguments

NUM_HOPS = (2, 2, 2, 3, 3, 3, 3, 4, 4, 4)  # by difficulty 1-10
NUM_CANDIDATES = (1, 1, 2, 2, 3, 3, 4, 4, 4, 4)  # products that search finds
NUM_LINES = (2, 2, 3, 3, 4, 4, 5, 6, 7, 8)
PEOPLE_PER_LINE = 8
MAX_TRIES = 1000

_ENTITY = {"type": "string", "description": "full name"}
ROLE = make_solver(
    "lookup",
    "You answer questions over a company's records. Find names with search, follow relations with lookup, "
    "one at a time, and answer with the one name asked for.",
    (
        Tool(
            name="search",
            description="Full names that contain a text.",
            parameters={
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        ),
        Tool(
            name="lookup",
            description="The value of one relation of one entity.",
            parameters={
                "type": "object",
                "properties": {"entity": _ENTITY, "relation": {"type": "string", "enum": list(RELATIONS)}},
                "required": ["entity", "relation"],
                "additionalProperties": False,
            },
        ),
    ),
)


def _draw_path(rng: random.Random, kind: str, count: int) -> list[str]:
    path: list[str] = []
    while len(path) < count:
        choices = [name for name, (of, _, _) in RELATIONS.items() if of == kind and name not in path]
        if not choices:
            return []
        path.append(rng.choice(choices))
        kind = RELATIONS[path[-1]][1]
    return path


def _visits_none_twice(records: Mapping[str, Any], start: str, path: Sequence[str]) -> bool:
    visited = [walk(records, start, path[:count]) for count in range(len(path) + 1)]
    return len(set(visited)) == len(visited)


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One question; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("lookup", split, seed, index, difficulty)
    num_lines, num_candidates = NUM_LINES[difficulty - 1], NUM_CANDIDATES[difficulty - 1]
    for _ in range(MAX_TRIES):
        records = build_records(rng, num_lines=num_lines, num_people=num_lines * PEOPLE_PER_LINE)
        line = rng.choice(sorted({name.split()[0] for name in records if "made_at" in records[name]}))
        products = find_names(records, f"{line} ")
        candidates = products[:num_candidates] if num_candidates > 1 else [rng.choice(products)]
        for extra in products:
            if num_candidates > 1 and extra not in candidates:
                del records[extra]
        start, mark = rng.choice(candidates), rng.choice(("made_at", "main_supplier"))
        fitting = [name for name in candidates if records[name][mark] == records[start][mark]]
        path = _draw_path(rng, "product", NUM_HOPS[difficulty - 1])
        if fitting == [start] and path and path[0] != mark and _visits_none_twice(records, start, path):
            break
    else:
        raise RuntimeError(f"no lookup scenario in {MAX_TRIES} tries")
    described = (
        f"the {start}"
        if num_candidates == 1
        else f"the {line} product whose {_say_relation(mark)} is {records[start][mark]}"
    )
    return Scenario(
        family="lookup",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=ROLE.name,
        brief=f"Company records. Which name is this: {say_chain(described, path)}?",
        facts={
            "records": records,
            "line": line,
            "candidates": candidates,
            "mark": [mark, records[start][mark]],
            "path": path,
        },
        truth={"answer": walk(records, start, path), "start": start},
        optimal_tool_calls=len(path) + (1 + num_candidates if num_candidates > 1 else 0),
    )


def _say_relation(relation: str) -> str:
    return {"made_at": "production site", "main_supplier": "main supplier"}[relation]


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {"answer": scenario.truth["answer"]}


def verify(scenario: Scenario, text: str) -> Verdict:
    """1 for the name, 0 for everything else."""
    check = Check(kind="exact", expected=scenario.truth["answer"])
    return judge_answer(text, check)


def certify(scenario: Scenario) -> tuple[float, float]:
    """1, and 1 if joins from every candidate that fits the description end in the oracle's answer alone."""
    facts = scenario.facts
    mark, value = facts["mark"]
    fitting = [name for name in facts["candidates"] if join(facts["records"], [name], [mark]) == {value}]
    return 1.0, float(join(facts["records"], fitting, facts["path"]) == {scenario.truth["answer"]})


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """search(text) or lookup(entity, relation).

    Raises:
        ToolError: another tool, other arguments, an unknown entity, a relation that it does not have.
    """
    records = scenario.facts["records"]
    tools: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "search": lambda arguments: search_names(records, arguments),
        "lookup": lambda arguments: read_relation(records, arguments),
    }
    return call_one_of(tools, call)


def search_names(records: Records, arguments: Mapping[str, Any]) -> str:
    """The tool search on any records; raises ToolError for other arguments."""
    (text,) = read_text_arguments(arguments, ("text",))
    return ", ".join(find_names(records, text)) or "no name contains that"


def read_relation(records: Records, arguments: Mapping[str, Any]) -> str:
    """The tool lookup on any records; raises ToolError for other arguments and unknown names."""
    entity, relation = read_text_arguments(arguments, ("entity", "relation"))
    if entity not in records:
        raise ToolError("no such entity; search for its full name")
    if relation not in records[entity]:
        raise ToolError(f"its relations are {' '.join(records[entity]) or 'none'}")
    return str(records[entity][relation])


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Follow the chain; where its start is only described, search and try the candidates in some order."""
    facts, start = scenario.facts, scenario.truth["start"]
    steps, text = [], ""
    if len(facts["candidates"]) > 1:
        steps.append(Step(text="", call=ToolCall(name="search", arguments={"text": facts["line"]})))
        order = rng.sample(facts["candidates"], len(facts["candidates"]))
        for candidate in order[: order.index(start) + 1]:
            steps.append(_look_up(text, candidate, facts["mark"][0]))
            text = f"{candidate} fits." if candidate == start else f"Not {candidate}."
    name = start
    for relation in facts["path"]:
        steps.append(_look_up(text, name, relation))
        name, text = facts["records"][name][relation], ""
    return (*steps, Step(text=json.dumps(solve(scenario))))


def _look_up(text: str, entity: str, relation: str) -> Step:
    arguments = {"entity": entity, "relation": relation}
    return Step(text=text, call=ToolCall(name="lookup", arguments=arguments))


def random_answer(scenario: Scenario, rng: random.Random) -> str:
    """Any name in the records."""
    return json.dumps({"answer": rng.choice(list(scenario.facts["records"]))})


def constant_answer(_scenario: Scenario, _rng: random.Random) -> str:
    """Always the same name, of the kind with the fewest names."""
    return json.dumps({"answer": "Nordmark"})


def greedy_answer(scenario: Scenario, _rng: random.Random) -> str:
    """Starts from the first name that search finds."""
    facts = scenario.facts
    return json.dumps({"answer": walk(facts["records"], facts["candidates"][0], facts["path"])})


FAMILY = Family(
    name="lookup",
    role=ROLE.name,
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    baselines={"random": random_answer, "constant": constant_answer, "greedy": greedy_answer},
)
