"""Solves questions about parts and reports from their texts alone: the user message and the tool's answers.

A second implementation of the rules as the system message states them, in fractions and without the domains.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from math import floor
from typing import Any

from roles.team import SPECIALISTS
from scenarios.team.funding import Funding
from scenarios.team.offers import TabledOffer
from simulator.agents.scripted_policies import read_table

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


Names = tuple[str, ...]
Terms = Mapping[str, Fraction]  # figures of the brief, see read_facts
Measure = Callable[[Names], tuple[int, int, bool]]  # names -> (cost, value, whether the limit holds)


@dataclass(frozen=True, slots=True)
class PricedPart:
    """A part as a second method prices it. Example: PricedPart(("spare gateway",), 9, 14, True)"""

    choice: Names
    cost: int
    worth: int
    keeps_limit: bool


def list_parts_from_text(seat: str, brief: str, description: str) -> tuple[int, list[PricedPart]]:
    """The amount, and every part that can be bought together."""
    names = list(_sections(description)["Upgrades"])
    stated = read_facts(seat, brief, names)
    measure, groups = READERS[seat](stated.figures, description)
    before = measure(())[1]
    found = []
    for count in range(len(names) + 1):
        for part in combinations(names, count):
            if len({groups.get(name, name) for name in part}) < count:
                continue
            cost, value, keeps = measure(part)
            found.append(PricedPart(part, cost, value - before, keeps))
    return int(stated.figures["amount"]), found


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return found.group(1)


def _sections(description: str) -> dict[str, dict[str, str]]:
    """Heading -> name -> what follows the colon."""
    sections: dict[str, dict[str, str]] = {}
    for line in description.splitlines():
        if line.endswith(":"):
            section = sections[line[:-1]] = {}
        else:
            name, _, rest = (
                line.replace(". ", ": ", 1).partition(": ") if line[0].isdigit() else line.partition(": ")
            )
            section[name] = rest
    return sections


def _cost(upgrades: dict[str, str], part: Names) -> int:
    return sum(int(_find(r"cost (\d+)", upgrades[name])) for name in part)


def read_architecture(terms: Terms, description: str) -> tuple[Measure, dict[str, str]]:
    sections = _sections(description)
    upgrades = sections["Upgrades"]
    per_step, reference = int(terms["latency_step"]), terms["latency_reference"]
    per_tenth, slo = int(terms["availability_step"]), terms["availability"]

    def measure(part: Names) -> tuple[int, int, bool]:
        state: dict[str, list[Any]] = {}
        for name, text in sections["Components"].items():
            ms, percent, machines = text.split(", ")
            state[name] = [int(ms.split()[0]), Fraction(percent.split()[0]) / 100, int(machines.split()[0])]
        for name in part:
            effect = upgrades[name].split(", ", 1)[1]
            if found := re.fullmatch(r"(.+) takes (\d+) ms", effect):
                state[found.group(1)][0] = int(found.group(2))
            elif found := re.fullmatch(r"machines of (.+) are up ([\d.]+) %", effect):
                state[found.group(1)][1] = Fraction(found.group(2)) / 100
            else:
                state[effect.removeprefix("one more machine of ")][2] += 1
        latency, up = 0, Fraction(1)
        for stage in sections["Stages"].values():
            branches = [branch.split(" + ") for branch in stage.split(" / ")]
            latency += max(sum(state[name][0] for name in branch) for branch in branches)
            all_down = Fraction(1)
            for branch in branches:
                works = Fraction(1)
                for name in branch:
                    works *= 1 - (1 - state[name][1]) ** state[name][2]
                all_down *= 1 - works
            up *= 1 - all_down
        available = Fraction(floor(up * 10_000), 100)
        steps = max(0, floor((reference - latency) / terms["latency_unit"]))
        tenths = max(0, floor((available - terms["base"]) / terms["availability_unit"]))
        return _cost(upgrades, part), per_step * steps + per_tenth * tenths, available >= slo

    return measure, {}


def read_work(terms: Terms, description: str) -> tuple[Measure, dict[str, str]]:
    sections = _sections(description)
    upgrades = sections["Upgrades"]
    per_day, deadline = int(terms["day"]), terms["deadline"]
    milestones = {
        name: int(_find(r"by day (\d+)", text)) for name, text in sections.get("Milestone", {}).items()
    }

    def measure(part: Names) -> tuple[int, int, bool]:
        effects = [upgrades[name].split(", ", 1)[1] for name in part]
        ends: dict[str, int] = {}
        busy: dict[str, int] = {}
        for name, text in sections["Packages"].items():
            owner, days_text, *after = text.split(", ")
            days = int(days_text.split()[0])
            start = max(
                (ends[earlier] for one in after for earlier in one.removeprefix("after ").split(" and ")),
                default=0,
            )
            hired = [e for e in effects if e.startswith(f"a contractor does {name} in ")]
            if hired:
                ends[name] = start + int(_find(r"in (\d+) days?", hired[0]))
                continue
            if f"packages of {owner} take a fifth less" in effects:
                days -= days // 5
            for effect in effects:
                if found := re.fullmatch(rf"(\d+) days? less for {re.escape(name)}", effect):
                    days = max(1, days - int(found.group(1)))
            ends[name] = busy[owner] = max(start, busy.get(owner, 0)) + days
        finish = max(ends.values())
        keeps = finish <= deadline and all(ends[name] <= day for name, day in milestones.items())
        return _cost(upgrades, part), -per_day * finish, keeps

    return measure, {}


def read_threats(terms: Terms, description: str) -> tuple[Measure, dict[str, str]]:
    sections = _sections(description)
    upgrades = sections["Upgrades"]
    appetite = terms["expected_loss"]
    caps = {name: int(_find(r"at most (\d+) k", text)) for name, text in sections.get("Cap", {}).items()}

    def measure(part: Names) -> tuple[int, int, bool]:
        lowered = {}
        for name in part:
            found = re.fullmatch(r"(.+) falls to (\d+) %", upgrades[name].split(", ", 1)[1])
            assert found
            lowered[found.group(1)] = int(found.group(2))
        reached = {"outside": Fraction(1)}
        losses: dict[str, int] = {}
        for asset, text in sections["Assets"].items():
            found = re.fullmatch(r"loss (\d+), from (.+?) by (.+)", text)
            assert found
            missed = Fraction(1)
            for route in found.group(3).split(" or by "):
                likelihood = Fraction(1)
                for step in route.split(" then "):
                    name, percent, _ = step.rsplit(" ", 2)
                    likelihood *= Fraction(lowered.get(name, int(percent)), 100)
                missed *= 1 - likelihood
            reached[asset] = reached[found.group(2)] * (1 - missed)
            losses[asset] = floor(int(found.group(1)) * reached[asset])
        total = sum(losses.values())
        keeps = total <= appetite and all(losses[name] <= cap for name, cap in caps.items())
        return _cost(upgrades, part), -int(terms["avoided_loss"]) * total, keeps

    return measure, {}


def read_prices(terms: Terms, description: str) -> tuple[Measure, dict[str, str]]:
    description, _, bundle = description.rpartition("\n")
    sections = _sections(description)
    upgrades = sections["Upgrades"]
    least, off = int(_find(r"at least (\d+) tiers", bundle)), int(_find(r"costs (\d+) less", bundle))
    per_point, ceiling, floor_points = int(terms["point"]), int(terms["ceiling"]), terms["quality"]
    item_of = {name: name.split(" ", 1)[1] for name in upgrades}

    def measure(part: Names) -> tuple[int, int, bool]:
        saved = 0
        quality = sum(int(_find(r"quality (\d+)", text)) for text in sections["Items"].values())
        for name in part:
            effect = upgrades[name].split(", ", 1)[1]
            if found := re.fullmatch(r"(\d+) % off (.+)", effect):
                price = int(_find(r"list price (\d+)", sections["Items"][found.group(2)]))
                saved += floor(Fraction(price * int(found.group(1)), 100))
            else:
                quality += int(_find(r"plus (\d+)", effect))
        cost = _cost(upgrades, part)
        for kind in ("committed", "premium"):
            same = [name for name in part if name.startswith(kind)]
            cost -= off * len(same) if len(same) >= least else 0
        return cost, int(terms["saved"]) * saved + per_point * min(quality, ceiling), quality >= floor_points

    return measure, item_of


READERS: dict[str, Callable[[Terms, str], tuple[Measure, dict[str, str]]]] = {
    "cto": read_architecture,
    "coo": read_work,
    "risk": read_threats,
    "cost": read_prices,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportText:
    """Facts that the text states. Example: read_report_text(scenario.brief).best.option"""

    values: Mapping[str, int]  # option -> k$ before any spending
    offers: Mapping[str, Mapping[str, TabledOffer]]  # option -> seat -> offer
    plans: tuple[Funding, ...]  # all that can be run

    @property
    def best(self) -> Funding | None:
        """The plan of the greatest worth, of equal worth the cheaper; None where none can be run."""
        return max(self.plans, key=lambda plan: (plan.worth, -plan.cost), default=None)

    def list_conflicts(self, option: str) -> list[str]:
        """The seats to whom another option is worth more than this one."""
        conflicts = []
        for seat in SPECIALISTS:
            totals = {
                letter: value + (max(0, own[seat].worth) if seat in (own := self.offers[letter]) else 0)
                for letter, value in self.values.items()
            }
            if totals[option] < max(totals.values()):
                conflicts.append(seat)
        return conflicts


@lru_cache(maxsize=512)
def read_report_text(brief: str) -> ReportText:
    """The text as figures; each seat offers one part on an option at most."""
    read = read_table(brief)
    tabled = [offer for report in read.reports.values() for offer in report.offers]
    offers = {
        option: {offer.seat: offer for offer in tabled if offer.option == option}
        for option in read.public.options
    }
    vetoed = {option for report in read.reports.values() for option in report.veto}
    plans = []
    for option, base in read.public.base.items():
        needed = {seat for seat, report in read.reports.items() if option in report.needs}
        for count in range(len(offers[option]) + 1) if option not in vetoed else ():
            for fund in combinations(offers[option].values(), count):
                cost, worth = sum(offer.cost for offer in fund), sum(offer.worth for offer in fund)
                if needed <= {offer.seat for offer in fund} and cost <= read.public.budget:
                    plans.append(Funding(option, fund, cost, base + worth))
    return ReportText(values=read.public.base, offers=offers, plans=tuple(plans))
