"""Reads the facts of a part question out of its brief, in whatever words it is written.

A sentence with figures is recognised by the units of its figures and by words for a bound or a direction.
Whatever cannot be read with certainty is refused: a figure without a unit, a sentence that fits no rule of
the seat or two, a rule that no sentence states or two do.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

_AT_LEAST = (
    r"at least|no less than|not less than|minimum|or more|or higher|not below|not fall below|never below"
)
_AT_MOST = (
    r"at most|no more than|not more than|maximum|or less|up to|not exceed|not above|capped|ceiling|limit of"
)
_UNDER = r"\bunder\b|\bbelow\b|\bbeneath\b|less than"
_OVER = r"\bover\b|\babove\b|\bbeyond\b|more than"
_LATEST = r"at the latest|no later than|not later than|\bby day\b|or earlier|or sooner|not after"
_QUANTITY = re.compile(
    r"\bday (?P<day>\d+)\b|(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>k\$|ms\b|%|points?\b|days?\b|tiers?\b)?"
)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n")
_NAME = re.compile(r"<(\d+)>")


class UnreadableBriefError(ValueError):
    """A brief whose facts cannot be read with certainty; the message quotes what."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A sentence that states figures: names of the figures by unit, smallest first, and words it must hold.

    Example: Rule({"%": ("availability",)}, (_AT_LEAST,))
    """

    figures: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...]
    without: str = "(?!)"  # what it must not hold; default: never found

    def fits(self, sentence: str, quantities: Mapping[str, Sequence[Fraction]]) -> bool:
        units = {unit: len(names) for unit, names in self.figures.items()}
        return (
            units == {unit: len(values) for unit, values in quantities.items()}
            and all(re.search(words, sentence, re.IGNORECASE) for words in self.words)
            and not re.search(self.without, sentence, re.IGNORECASE)
        )


_AMOUNT = Rule({"k$": ("amount",)}, (_AT_MOST, r"\boption\b"), without=r"\bloss")
RULES: Mapping[str, tuple[Rule, ...]] = {
    "cto": (
        _AMOUNT,
        Rule({"ms": ("latency_unit", "latency_reference"), "k$": ("latency_step",)}, ("latency", _UNDER)),
        Rule({"%": ("availability_unit", "base"), "k$": ("availability_step",)}, ("availab", _OVER)),
        Rule({"%": ("availability",)}, ("availab", _AT_LEAST), without=_AT_MOST),
    ),
    "coo": (
        _AMOUNT,
        Rule({"k$": ("day",)}, (r"\bday\b", r"earlier|sooner|ahead")),
        Rule({"day": ("deadline",)}, (_LATEST,)),
    ),
    "risk": (
        _AMOUNT,
        Rule({"k$": ("avoided_loss",)}, (r"\bloss", r"avoid|prevent|avert"), without=_AT_MOST),
        Rule({"k$": ("expected_loss",)}, (r"\bloss", _AT_MOST), without=rf"{_AT_LEAST}|avoid|prevent|avert"),
    ),
    "cost": (
        _AMOUNT,
        Rule({"k$": ("saved",)}, (r"\bsaved?\b|\bsaving",), without=_AT_MOST),
        Rule({"point": ("ceiling",), "k$": ("point",)}, ("quality", _AT_MOST), without=_AT_LEAST),
        Rule({"point": ("quality",)}, ("quality", _AT_LEAST), without=_AT_MOST),
        Rule({"tier": ("bundle_tiers",), "": ("bundle_off",)}, (_AT_LEAST, r"\bless\b|cheaper|\boff\b")),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefFacts:
    """All that a brief states.

    Example: read_facts("risk", brief, ["metal detector"]).figures["amount"] == 17
    """

    option: str
    figures: Mapping[str, Fraction]  # by the names of the seat's RULES
    costs: Mapping[str, Fraction]  # of what can be bought, in k$


def read_facts(seat: str, text: str, names: Sequence[str]) -> BriefFacts:
    """The facts of a brief to a seat; `names` are those of what can be bought.

    Raises:
        UnreadableBriefError: something is missing, stated twice, or cannot be read with certainty.
    """
    options = set(re.findall(r"\boption ([A-Z])\b", text, re.IGNORECASE))
    if len(options) != 1:
        raise UnreadableBriefError(f"options named: {', '.join(sorted(options)) or 'none'}")
    figures: dict[str, Fraction] = {}
    costs: dict[str, Fraction] = {}
    for sentence in _SENTENCE.split(_mask_names(text, names)):
        if _NAME.search(sentence):
            _add(costs, [(names[number], cost) for number, cost in _read_costs(sentence)])
        else:
            _add(figures, _read_rule(RULES[seat], sentence))
    wanted = {name for rule in RULES[seat] for own in rule.figures.values() for name in own}
    lacking = sorted((wanted - set(figures)) | (set(names) - set(costs)))
    if lacking:
        raise UnreadableBriefError(f"not stated: {', '.join(lacking)}")
    return BriefFacts(option=options.pop().upper(), figures=figures, costs=costs)


def _add(known: dict[str, Fraction], stated: Iterable[tuple[str, Fraction]]) -> None:
    for name, value in stated:
        if name in known:
            raise UnreadableBriefError(f"{name} is stated twice")
        known[name] = value


def _mask_names(text: str, names: Sequence[str]) -> str:
    """The text with every name as its number in angle brackets; longer names first."""
    for number, name in sorted(enumerate(names), key=lambda item: -len(item[1])):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"<{number}>", text, flags=re.IGNORECASE)
    return text


def _read_costs(sentence: str) -> list[tuple[int, Fraction]]:
    """Numbers of names with their costs, where the two alternate in the sentence; [] without costs."""
    tokens = re.findall(r"<\d+>|\d+(?:\.\d+)?", sentence)
    names = [int(token[1:-1]) for token in tokens if token[0] == "<"]
    costs = [Fraction(token) for token in tokens if token[0] != "<"]
    if not costs:
        return []
    kinds = [token[0] == "<" for token in tokens]
    if len(names) != len(costs) or any(one == other for one, other in pairwise(kinds)):
        raise UnreadableBriefError(f"costs in {sentence[:80]!r}")
    return list(zip(names, costs, strict=True))


def _read_rule(rules: Sequence[Rule], sentence: str) -> Iterator[tuple[str, Fraction]]:
    """The figures of the one rule that the sentence states; none of a sentence without figures."""
    quantities: dict[str, list[Fraction]] = {}
    for found in _QUANTITY.finditer(sentence):
        unit = "day" if found["day"] else (found["unit"] or "").removesuffix("s")
        unit = "ms" if unit == "m" else unit
        quantities.setdefault(unit, []).append(Fraction(found["day"] or found["number"]))
    if not quantities:
        return
    fitting = [rule for rule in rules if rule.fits(sentence, quantities)]
    if len(fitting) != 1:
        raise UnreadableBriefError(f"figures in {sentence[:80]!r}")
    for unit, names in fitting[0].figures.items():
        yield from zip(names, sorted(quantities[unit]), strict=True)
