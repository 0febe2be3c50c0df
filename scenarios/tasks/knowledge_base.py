"""A made-up company's records: people, products, sites, suppliers, teams, cities, and who belongs to what.

Every relation gives an entity exactly one value, so that a chain of relations has exactly one end.
"""

import itertools
import random
from collections.abc import Mapping, Sequence

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
    "Orbis",
    "Tandem",
    "Kestrel",
    "Mosaic",
    "Pylon",
    "Sable",
    "Triton",
    "Umbra",
    "Vesper",
    "Willow",
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
