"""The frame of a case, and the structures of its seats one by one.

Each structure has a random stream of its own, so that a seat's sub-question is drawn without the other seats.
Words have one, too: the figures of a case do not depend on the sector, situation and wording that tell it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scenarios.base import Split, check_coordinates
from scenarios.company.domain import (
    PRICE_LEVELS,
    Request,
    Terms,
    price_parts,
)
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import has_twins, list_efficient
from scenarios.company.records import Part
from scenarios.company.sectors import SECTORS, SLOTS, Sector, draw_sector, draw_wording

NUM_OPTIONS = (2, 2, 3, 3, 3, 4, 4, 4, 5, 5)  # by difficulty 1-10
BREAKS_LIMIT = (5, 8, 24, 25, 26, 27, 28, 29, 30, 30)  # percent of (seat, option) that must buy something
MOST_TO_KEEP = 14  # k$: the cheapest part that keeps a limit costs no more
LEAST_WORTH = 4  # k$: of the best part over the cheapest that keeps the limit
LEAST_EFFICIENT = 3  # efficient parts of a structure, at least
MAX_TRIES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Facts that all seats of a case share before any structure is drawn.

    Example: draw_setting("train", 0, 7, 2).names == {"A": "shared switch of three banks", "B": ...}
    """

    key: str
    split: Split
    seed: int
    index: int
    difficulty: int
    sector: Sector
    situation: str
    wording: int  # number of the wording in which the case is told
    names: Mapping[str, str]  # option letter -> name
    drawn_names: Mapping[str, str]  # the same in the sector that the figures are drawn for
    drawn_sector: str  # its name: cases of one sector are drawn for one sector
    price_levels: Mapping[str, int]  # option letter -> percent of the middle prices
    terms: Mapping[str, Terms]  # by seat
    breaks_limit: Mapping[str, frozenset[str]]  # seat -> letters on which it must buy something


def find_sector(split: Split, seed: int, index: int, difficulty: int) -> str:
    """Name of the sector that the case of these coordinates plays in; nothing else of it is drawn.

    Raises:
        ValueError: coordinates out of range.
    """
    return _open_streams(split, seed, index, difficulty)[-1].name


def _open_streams(
    split: Split, seed: int, index: int, difficulty: int
) -> tuple[str, random.Random, random.Random, Sector, Sector]:
    """Key of the case, its streams of figures and words, the sector that is drawn, the one that tells it."""
    check_coordinates(split, seed, index, difficulty)
    key = f"company/{split}/{seed}/{index}/{difficulty}"
    rng, words = random.Random(key), random.Random(f"{key}/words")
    slot = rng.choice(SLOTS)
    return key, rng, words, SECTORS[slot], draw_sector(words, split, slot)


def draw_setting(split: Split, seed: int, index: int, difficulty: int) -> Setting:
    """The frame of one case; a pure function of its coordinates.

    Raises:
        ValueError: coordinates out of range.
    """
    key, rng, words, drawn, sector = _open_streams(split, seed, index, difficulty)
    letters = "ABCDE"[: NUM_OPTIONS[difficulty - 1]]
    places = rng.sample(range(len(sector.options)), len(letters))
    levels = rng.sample(PRICE_LEVELS, len(letters))
    share = BREAKS_LIMIT[difficulty - 1]
    return Setting(
        key=key,
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        sector=sector,
        situation=words.choice(sector.situations).replace("{company}", rng.choice(sector.companies)),
        wording=draw_wording(words, split),
        names={letter: sector.options[place] for letter, place in zip(letters, places, strict=True)},
        drawn_names={letter: drawn.options[place] for letter, place in zip(letters, places, strict=True)},
        drawn_sector=drawn.name,
        price_levels=dict(zip(letters, levels, strict=True)),
        terms={seat: domain.draw_terms(rng) for seat, domain in DOMAINS.items()},
        breaks_limit={
            seat: frozenset(letter for letter in letters if rng.randrange(100) < share) for seat in DOMAINS
        },
    )


def draw_structure(
    setting: Setting,
    seat: str,
    letter: str,
    attempt: int = 0,
    limit: Literal["as set", "need", "veto"] = "as set",
) -> tuple[dict[str, Any], tuple[Part, ...]]:
    """One seat's structure on one option, and all its parts.

    Without a part the limit holds or breaks as the setting says; no two efficient parts are alike. With
    `limit` "need" it breaks without a part, with "veto" no part keeps it.

    Raises:
        RuntimeError: no structure in MAX_TRIES draws.
    """
    domain, terms = DOMAINS[seat], setting.terms[seat]
    stream = f"{setting.key}/{seat}/{letter}/{attempt}"
    rng = random.Random(stream if limit == "as set" else f"{stream}/{limit}")
    request = Request(
        sector=setting.sector,
        difficulty=setting.difficulty,
        terms=terms,
        price_level=setting.price_levels[letter],
        breaks_limit=limit != "as set" or letter in setting.breaks_limit[seat],
        vetoes=limit == "veto",
    )
    for _ in range(MAX_TRIES):
        structure = domain.draw(rng, request)
        if domain.keeps_limit(terms, domain.measure(structure, ())) == request.breaks_limit:
            continue
        parts = price_parts(domain, structure, terms, letter)
        efficient = list_efficient(parts)
        if limit == "veto":
            if efficient:
                continue
            return structure, parts
        if (
            len(efficient) >= LEAST_EFFICIENT
            and efficient[0].cost <= MOST_TO_KEEP
            and efficient[-1].worth - efficient[0].worth >= LEAST_WORTH
            and not has_twins(parts)
        ):
            return structure, parts
    raise RuntimeError(f"no {seat} structure of {setting.key} in {MAX_TRIES} draws")
