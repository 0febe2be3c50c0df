"""When two cases are the same case: facts without names and order, however the brief words them.

Two cases of one normal form differ at most in what things are called, in which order they are listed, and in
the wording and sector of the brief. A brief counts by its numbers, and by its words where there are no facts.
Names are labels of one letter and up to three digits (A, P1, K12); they are told apart by where they occur
(colour refinement), so that renaming everything consistently changes nothing and mixing people up does.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from scenarios.base import Scenario
from scenarios.briefs.sectors import SECTORS
from scenarios.team.case import TeamScenario

LABEL = re.compile(r"[A-Za-z]\d{0,3}")
ROUNDS = 2  # of refinement: by its own figures, then by those of what it stands beside
_SECTORS = {sector.lower() for sector in SECTORS}

Places = dict[str, list[str]]  # by label
Lists = Mapping[str, Sequence[Any]]  # lists in sight, by key: what an index refers to


def normal_form(case: Scenario | TeamScenario) -> str:
    """Equal for cases that are equal up to names, order and wording.

    Example: {"hours": {"A": 3, "B": 5}} and {"hours": {"A": 5, "B": 3}} have one normal form.
    """
    facts, briefs = _open(case)
    colours = dict.fromkeys(_find_labels(facts), "")
    for _ in range(ROUNDS):
        places: Places = defaultdict(list)
        _spell(facts, colours, "", places)
        colours = {label: _digest(colours[label], *sorted(found)) for label, found in places.items()}
    words = sorted(word for brief in briefs for word in _split_words(brief))
    said = sorted({word for word in words if word.isdecimal()}) if facts else words
    return f"{_spell(facts, colours, '', defaultdict(list))} {' '.join(said)}"


def list_records(case: Scenario | TeamScenario) -> frozenset[str]:
    """What the case consists of: figures that stand together, names left out (sentences without facts).

    Repeated records are numbered. The share of records that two cases have in common is their similarity.
    """
    facts, briefs = _open(case)
    sentences = [sentence for brief in briefs for sentence in re.split(r"[.\n]", brief)]
    records = _list_records(facts, "") if facts else (" ".join(sorted(_split_words(s))) for s in sentences)
    return frozenset(
        f"{record}#{n}" for record, count in Counter(records).items() for n in range(count) if record
    )


def compute_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity of two sets of records, in [0, 1]."""
    return len(one & other) / len(one | other) if one or other else 1.0


def _open(case: Scenario | TeamScenario) -> tuple[Any, list[str]]:
    if isinstance(case, Scenario):
        return _resolve(case.facts, {}), [case.brief]
    facts = {role: _resolve(seat.facts, {}) for role, seat in case.seats.items()}
    return facts, [seat.brief for seat in case.seats.values()]


def _resolve(value: Any, lists: Lists) -> Any:
    """Numbers under a key `x` become the element that they index in the list `xs` around them."""
    if isinstance(value, Mapping):
        lists = {**lists, **{key: v for key, v in value.items() if isinstance(v, list | tuple)}}
        return {key: _resolve(_look_up(key, v, lists), lists) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(v, lists) for v in value]
    return value


def _look_up(key: str, value: Any, lists: Lists) -> Any:
    elements = lists.get(f"{key}s", ())
    is_index = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(elements)
    return [elements[value]] if is_index else value


def _split_words(text: str) -> Iterator[str]:
    return (word for word in re.findall(r"\w+", text) if word.lower() not in _SECTORS)


def _find_labels(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (key for key in value if LABEL.fullmatch(key))
        for inner in value.values():
            yield from _find_labels(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_labels(inner)
    elif isinstance(value, str) and LABEL.fullmatch(value):
        yield value


def _spell(value: Any, colours: Mapping[str, str], place: str, places: Places) -> str:
    """As text, whatever the order; `places` learns what is to be seen from every occurrence of a label.

    Mappings and lists are unordered; a list in a list (an edge, a price tier) keeps its order.
    """
    if isinstance(value, Mapping):
        pairs = []
        for key, inner in value.items():
            colour = colours.get(key, key)
            text = _spell(inner, colours, f"{place}/{colour}", places)
            pairs.append(f"{colour}:{text}")
            if key in colours:
                places[key].append(f"{place}:{text}")
        return f"{{{','.join(sorted(pairs))}}}"
    if isinstance(value, list):
        is_ordered = place.endswith("[")
        texts = [_spell(inner, colours, f"{place}[", places) for inner in value]
        text = f"[{','.join(texts if is_ordered else sorted(texts))}]"
        for position, inner in enumerate(value):
            if isinstance(inner, str) and inner in colours:
                places[inner].append(f"{place}@{position if is_ordered else ''}{text}")
        return text
    if not isinstance(value, str):
        return repr(value)
    if value in colours and not place.endswith("["):
        places[value].append(place)
    return colours.get(value, value)


def _list_records(value: Any, place: str) -> Iterator[str]:
    """Per mapping or list: its place and the plain values directly in it."""
    if isinstance(value, Mapping):
        pairs = [("*" if LABEL.fullmatch(key) else key, inner) for key, inner in value.items()]
    else:
        pairs = [("", inner) for inner in value]
    plain = [f"{key}:{_erase(inner)}" for key, inner in pairs if not isinstance(inner, Mapping | list)]
    if any(not pair.endswith(":*") for pair in plain):  # labels alone say nothing
        yield f"{place} {' '.join(sorted(plain) if isinstance(value, Mapping) else plain)}"
    for key, inner in pairs:
        if isinstance(inner, Mapping | list):
            yield from _list_records(inner, f"{place}/{key}")


def _erase(value: Any) -> str:
    return "*" if isinstance(value, str) and LABEL.fullmatch(value) else str(value)


def _digest(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
