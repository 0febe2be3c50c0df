"""Family lookup: questions over a company's records that take two to four look-ups in a row.

At low difficulty the first entity is named; then it is only described ("the Falcon product made at ..."), and
search gives several candidates of which one fits. The answer is one name: right or wrong. Every relation
gives an entity exactly one value, so that a chain of relations has exactly one end.
"""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from roles.base import Tool
from scenarios.base import Scenario, Split, Step, ToolCall, ToolError, check_coordinates, scenario_rng
from scenarios.tasks.solver import ToolFunction, build_task_family, make_solver, read_text_arguments

FIRST_NAMES = (
    *("Ada", "Bruno", "Carla", "Dario", "Elin", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lars"),
    *("Mira", "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Umar", "Vera", "Wim", "Yara", "Zeno"),
)
LAST_NAMES = (
    *("Adler", "Berg", "Costa", "Dahl", "Ekman", "Falk", "Gallo", "Holm", "Ivers", "Jansen", "Kovac"),
    *("Lind", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Rossi", "Sato", "Thorn", "Unger", "Voss"),
)
LINES = ("Falcon", "Orion", "Delta", "Polar", "Vector", "Comet", "Zephyr", "Quartz")
WARES = ("pump", "sensor", "turbine", "router", "battery", "scanner", "valve", "drive")
PLACES = (
    *("Halden", "Brisco", "Corvo", "Dunmore", "Estrel", "Fenwick", "Garda", "Hollin", "Istra", "Jarrow"),
    *("Kelso", "Lomond", "Marren", "Norby", "Oswin", "Parva"),
)
COUNTRIES = ("Nordmark", "Velland", "Sorrenia", "Castova", "Ilmaria", "Ostland", "Perrin", "Quellia")
SUPPLIER_NAMES = (
    *("Orbis", "Tandem", "Kestrel", "Mosaic", "Pylon"),
    *("Sable", "Triton", "Umbra", "Vesper", "Willow"),
)
TEAM_NAMES = ("Payments", "Logistics", "Research", "Quality", "Safety", "Design", "Support", "Audit")

# relation: (kind it is asked of, kind of its value, how a question says it)
RELATIONS: Mapping[str, tuple[str, str, str]] = {
    "owner": ("product", "person", "the owner of {}"),
    "made_at": ("product", "site", "the site where {} is made"),
    "main_supplier": ("product", "supplier", "the main supplier of {}"),
    "head": ("site", "person", "the head of {}"),
    "city": ("site", "city", "the city of {}"),
    "contact": ("supplier", "person", "the contact person at {}"),
    "headquarters": ("supplier", "city", "the city with the headquarters of {}"),
    "manager": ("person", "person", "the manager of {}"),
    "team": ("person", "team", "the team of {}"),
    "office": ("person", "site", "the site with the office of {}"),
    "lead": ("team", "person", "the lead of {}"),
    "country": ("city", "country", "the country of {}"),
}

Records = Mapping[str, Mapping[str, str]]  # entity -> relation -> value

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


def build_records(rng: random.Random, *, num_lines: int, num_people: int) -> dict[str, dict[str, str]]:
    """Records with `num_lines` product lines of five wares each; entities in a random order."""
    kinds = _name_entities(rng, num_lines, num_people)
    records = {
        entity: {
            relation: rng.choice([other for other in kinds[value_kind] if other != entity])
            for relation, (kind, value_kind, _) in RELATIONS.items()
            if kind == entity_kind
        }
        for entity_kind, entities in kinds.items()
        for entity in entities
    }
    shuffled = sorted(records)
    rng.shuffle(shuffled)
    return {entity: records[entity] for entity in shuffled}


def _name_entities(rng: random.Random, num_lines: int, num_people: int) -> dict[str, list[str]]:
    people = [f"{first} {last}" for first, last in itertools.product(FIRST_NAMES, LAST_NAMES)]
    places = rng.sample(PLACES, 12)
    return {
        "person": rng.sample(people, num_people),
        "product": [
            f"{line} {ware}" for line in rng.sample(LINES, num_lines) for ware in rng.sample(WARES, 5)
        ],
        "site": [f"{place} plant" for place in places[:6]],
        "city": [f"{place} City" for place in places[6:]],
        "supplier": [f"{name} Metals" for name in rng.sample(SUPPLIER_NAMES, 5)],
        "team": [f"{name} team" for name in rng.sample(TEAM_NAMES, 5)],
        "country": rng.sample(COUNTRIES, 5),
    }


def find_names(records: Records, text: str, most: int = 10) -> list[str]:
    """The first names that contain `text`, in any case, in the order of the records."""
    wanted = text.strip().casefold()
    return [name for name in records if wanted and wanted in name.casefold()][:most]


def walk(records: Records, start: str, path: Sequence[str]) -> str:
    """Return the end of a chain of relations; KeyError where an entity lacks one."""
    for relation in path:
        start = records[start][relation]
    return start


def join(records: Records, starts: Sequence[str], path: Sequence[str]) -> set[str]:
    """The same by joins over the table of all (entity, relation, value)."""
    rows = [(name, relation, value) for name, about in records.items() for relation, value in about.items()]
    found = set(starts)
    for step in path:
        found = {value for name, relation, value in rows if relation == step and name in found}
    return found


def say_chain(start: str, path: Sequence[str]) -> str:
    """A chain in words: "the manager of the owner of the Falcon pump"."""
    for relation in path:
        start = RELATIONS[relation][2].format(start)
    return start


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


def certify(scenario: Scenario) -> tuple[float, float]:
    """1, and 1 if joins from every candidate that fits the description end in the oracle's answer alone."""
    facts = scenario.facts
    mark, value = facts["mark"]
    fitting = [name for name in facts["candidates"] if join(facts["records"], [name], [mark]) == {value}]
    return 1.0, float(join(facts["records"], fitting, facts["path"]) == {scenario.truth["answer"]})


def list_tools(scenario: Scenario) -> dict[str, ToolFunction]:
    """search(text) and lookup(entity, relation) on the scenario's records."""
    records = scenario.facts["records"]
    return {
        "search": lambda arguments: search_names(records, arguments),
        "lookup": lambda arguments: read_relation(records, arguments),
    }


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
    return (*steps, Step(text=json.dumps({"answer": scenario.truth["answer"]})))


def _look_up(text: str, entity: str, relation: str) -> Step:
    arguments = {"entity": entity, "relation": relation}
    return Step(text=text, call=ToolCall(name="lookup", arguments=arguments))


def answer_greedily(scenario: Scenario, _rng: random.Random) -> str:
    """Starts from the first name that search finds."""
    facts = scenario.facts
    return walk(facts["records"], facts["candidates"][0], facts["path"])


FAMILY = build_task_family(
    ROLE,
    kind="exact",
    generate=generate,
    certify=certify,
    list_tools=list_tools,
    demonstrate=demonstrate,
    baselines={
        "random": lambda scenario, rng: str(rng.choice(list(scenario.facts["records"]))),
        "constant": lambda _scenario, _rng: "Nordmark",  # of the kind with the fewest names
        "greedy": answer_greedily,
    },
)
