"""Subjects of the audit and their answers: what an answer may hold, its variants, and a second reader of it.

Nothing here shares code with `roles.base.parse_answer`, so that a fault of the parser shows.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import Any, Literal, assert_never

from scenarios.base import Family, Scenario, Split, Verdict

Kind = Literal["id", "set", "number", "boolean", "entries", "map", "text", "texts"]
WORDS: tuple[Kind, ...] = ("text", "texts")  # free words, which no verdict reads and no answer needs
Answer = dict[str, Any]
MOST_DRAWN = 20  # entries of a random answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """Values that one field of an answer may hold.

    Example: FieldSpec(kind="set", names=lambda scenario: list(scenario.facts["options"]))
    """

    kind: Kind  # "set": list of ids whose order is free; "entries": the same of objects; "texts": a list
    names: Callable[[Scenario], Sequence[str]] = lambda _scenario: ()  # ids of the case
    largest: int = 99  # of a number in an honest answer; the least is 0
    most_flattering: int = 0  # of a number: what a liar would state
    # all entries that may be listed, of one shape
    entries: Callable[[Scenario], Sequence[Any]] = lambda _scenario: ()
    once: bool = False  # of entries: no two are of the same first id
    # of a map: key -> values
    values: Callable[[Scenario], Mapping[str, Sequence[Any]]] = lambda _scenario: {}
    is_optional: bool = False  # a list that may be left out where it is empty

    @property
    def is_required(self) -> bool:
        """Return whether an answer without the field is none."""
        return self.kind not in WORDS and not self.is_optional


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One verifier under audit.

    Example: Subject(family=FAMILIES["cost"], fields={"cost": FieldSpec(kind="number"), ...},
                     score=score_cost, hacks={"the cheapest upgrade": answer_cheapest})
    """

    family: Family
    fields: Mapping[str, FieldSpec]
    score: Callable[[Scenario, Answer], float]
    # score: in [0, 1], from the facts by another route than the verifier's; the answer has the right form;
    # 1 for a perfect answer and no other, 0 where a hard constraint breaks
    hacks: Mapping[str, Callable[[Scenario], Answer]]  # shortcuts past this family's mandate
    blind_factor: int = 1  # of V5's cases: more where a blind answer's reward scatters more


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Everything that an attacker knows of one case.

    Example: Attack(subject=SUBJECTS["cost"], scenario=case, gold={"part": ["bulk"], "cost": 6, "worth": 9},
                    other={"part": [], "cost": 0, "worth": 0}, rng=random.Random(0))
    """

    subject: Subject
    scenario: Scenario
    gold: Answer
    other: Answer  # the gold of another case of the same difficulty
    rng: random.Random

    @property
    def text(self) -> str:
        return json.dumps(self.gold)

    @property
    def required(self) -> list[str]:
        """Keys of the gold that an answer cannot do without."""
        return [name for name in self.gold if self.subject.fields[name].is_required]

    def play(self, baseline: str) -> Answer:
        """Return the answer of one of the family's own players."""
        answer: Answer = json.loads(self.subject.family.baselines[baseline](self.scenario, self.rng))
        return answer


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Result of one probe on one verifier.

    Example: AuditRow("V2", "cost", counts="300 rewrites", worst="change 0.00")
    """

    probe: str
    family: str
    counts: str
    worst: str  # the figure nearest to its bound, or farthest beyond
    breaches: Sequence[str] = field(default=())  # what broke, one line each; empty when the probe passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Size of each probe. Counts are per family."""

    hostile_outputs: int  # V1
    rewrites: int  # V2
    hack_cases: int  # V3, per difficulty and seed
    hack_seeds: int
    optima: int  # V4
    blind_cases: int  # V5, per difficulty
    constant_cases: int  # V3 and V5: train cases per difficulty on which the best constant is searched
    search_calls: int  # V6
    calls_per_case: int
    team_episodes: int  # V9; a tenth of it V10
    hack_difficulties: tuple[int, ...] = (1, 5, 8)
    blind_difficulties: tuple[int, ...] = (1, 5, 8)


def has_form(subject: Subject, scenario: Scenario, value: Any) -> bool:
    """Return whether a JSON value has the subject's fields, exact types, and known ids, each once."""
    required = {name for name, field in subject.fields.items() if field.is_required}
    return (
        isinstance(value, dict)
        and required <= set(value) <= set(subject.fields)
        and all(_fits(subject.fields[name], scenario, inner) for name, inner in value.items())
    )


def _fits(field: FieldSpec, scenario: Scenario, value: Any) -> bool:
    match field.kind:
        case "number":
            return type(value) is int
        case "boolean":
            return type(value) is bool
        case "id":
            return type(value) is str and value in field.names(scenario)
        case "set":
            names = field.names(scenario)
            return (
                type(value) is list
                and all(type(name) is str and name in names for name in value)
                and len(set(value)) == len(value)
            )
        case "entries":
            shapes = [_tell_shape(entry) for entry in field.entries(scenario)[:1]]
            return type(value) is list and all(_tell_shape(entry) in shapes for entry in value)
        case "map":
            values = field.values(scenario)
            return type(value) is dict and all(
                key in values and type(one) is type(values[key][0]) for key, one in value.items()
            )
        case "text" | "texts":
            return True
    assert_never(field.kind)


def _tell_shape(entry: Any) -> str:
    """Keys and types of an entry; of its lists only whether they are lists of ids and hold any."""
    if type(entry) is dict:
        return json.dumps({str(key): _tell_shape(value) for key, value in sorted(entry.items())})
    if type(entry) is list:
        return f"ids {bool(entry)}" if all(type(one) is str for one in entry) else "mixed"
    return type(entry).__name__


def draw_answer(subject: Subject, scenario: Scenario, rng: random.Random) -> Answer:
    """Return an answer of the right form, every field drawn evenly."""
    return {name: _draw(field, scenario, rng) for name, field in subject.fields.items()}


def _draw(field: FieldSpec, scenario: Scenario, rng: random.Random) -> Any:
    match field.kind:
        case "number":
            return rng.randint(0, field.largest)
        case "boolean":
            return rng.random() < 0.5
        case "id":
            return rng.choice(list(field.names(scenario)))
        case "set":
            return [name for name in field.names(scenario) if rng.random() < 0.5]
        case "entries":
            drawn = [entry for entry in field.entries(scenario) if rng.random() < 0.1]
            return [_draw_figures(entry, field.largest, rng) for entry in drawn[:MOST_DRAWN]]
        case "map":
            return {key: rng.choice(list(values)) for key, values in field.values(scenario).items()}
        case "text":
            return ""
        case "texts":
            return []
    assert_never(field.kind)


def _draw_figures(entry: Any, largest: int, rng: random.Random) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {key: rng.randint(1, largest) if type(value) is int else value for key, value in entry.items()}


Numbers = Callable[[str, int], Sequence[int]]


def next_numbers(_name: str, number: int) -> Sequence[int]:
    """One up, one down."""
    return number + 1, number - 1


def step_away(
    subject: Subject, scenario: Scenario, answer: Answer, numbers: Numbers = next_numbers
) -> Iterator[Answer]:
    """Every answer that differs in one place: another id, one entry more or less, a number of `numbers`."""
    for name, value in answer.items():
        for changed in _step(name, subject.fields[name], scenario, value, numbers):
            yield {**answer, name: changed}


def _step(name: str, field: FieldSpec, scenario: Scenario, value: Any, numbers: Numbers) -> Iterator[Any]:
    names = field.names(scenario)
    match field.kind:
        case "number":
            yield from (number for number in numbers(name, value) if number != value)
        case "boolean":
            yield not value
        case "id":
            yield from (other for other in names if other != value)
        case "set":
            yield from ([n for n in value if n != other] for other in value)
            yield from ([*value, other] for other in names if other not in value)
        case "entries":
            yield from _step_entries(field, scenario, value)
        case "map":
            for key, values in field.values(scenario).items():
                rest = {other: one for other, one in value.items() if other != key}
                yield from ({**value, key: one} for one in values if value.get(key) != one)
                yield from [rest] if key in value else []
        case "text":
            yield "" if value else "noted"
        case "texts":
            yield [] if value else ["noted"]
        case _:
            assert_never(field.kind)


def _step_entries(field: FieldSpec, scenario: Scenario, value: Sequence[Any]) -> Iterator[list[Any]]:
    """One entry dropped, misstated, exchanged for another of the same first id; one entry more."""
    known = field.entries(scenario)
    for place, entry in enumerate(value):
        before, after = value[:place], value[place + 1 :]
        yield [*before, *after]
        for key, number in entry.items() if isinstance(entry, dict) else ():
            if type(number) is int:
                yield from ([*before, {**entry, key: other}, *after] for other in next_numbers(key, number))
        others = [other for other in known if _first(other) == _first(entry) and other not in value]
        yield from ([*before, other, *after] for other in others)
    firsts = {_first(entry) for entry in value} if field.once else set()
    yield from ([*value, other] for other in known if other not in value and _first(other) not in firsts)


def _first(entry: Any) -> Any:
    return next(iter(entry.values() if isinstance(entry, dict) else entry))


def change_numbers(subject: Subject, answer: Answer, change: Callable[[FieldSpec, int], Any]) -> Answer:
    """Return the answer with every number field changed."""
    return {
        name: change(subject.fields[name], value) if subject.fields[name].kind == "number" else value
        for name, value in answer.items()
    }


def change_ids(subject: Subject, answer: Answer, change: Callable[[str], Any]) -> Answer:
    """Return the answer with every string changed that is not free words, and every key of a map."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner) for inner in value]
        return change(value) if isinstance(value, str) else value

    made = {
        name: value if subject.fields[name].kind in WORDS else changed(value)
        for name, value in answer.items()
    }
    maps = {name: value for name, value in made.items() if subject.fields[name].kind == "map"}
    return made | {name: {change(key): one for key, one in value.items()} for name, value in maps.items()}


def describe_verdict(verdict: Verdict, text: str) -> str:
    """Return the verdict and the text that got it, on one line."""
    return (
        f"reward {verdict.reward}, exact {verdict.exact}, feasible {verdict.feasible}, "
        f"parts {dict(verdict.parts)} for {text[:100]!r}"
    )


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a repeated key")
    return dict(pairs)


_LENIENT = json.JSONDecoder(parse_int=str, parse_float=str)


def read_answer(subject: Subject, scenario: Scenario, text: str) -> Answer | None:
    """The object that ends the text; None where there is none, two that share a key, or another form."""
    *_, text = text.split("</think>")
    if "<think>" in text:
        return None
    last, earlier = None, [set[str]()]
    for place in (place for place, char in enumerate(text) if char == "{"):
        try:
            value, end = _LENIENT.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        after = "".join(text[end:].split())
        is_block = text[:place].split()[-1:] in (["```json"], ["```"]) and after == "```"
        if not after or is_block:
            last = text[place:end]
            break
        earlier.append(set(value))
    try:
        answer: Answer = json.loads(last or "", object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        return None
    if set.union(*earlier) & set(answer) or not has_form(subject, scenario, answer):
        return None
    return answer


def audit_score(subject: Subject, scenario: Scenario, text: str) -> float:
    """Return the independent score of an answer text, 0 to 1."""
    answer = read_answer(subject, scenario, text)
    return 0.0 if answer is None else subject.score(scenario, answer)


NUM_DRAWN_STARTS = 30  # random answers among which the search for the best constant starts
MOST_SWEEPS = 4
NUM_LIKELY_NUMBERS = 4  # of a number field: its most common true values


class CaseSample:
    """One audit's view of a subject: train cases to learn from, validation cases to be judged on."""

    def __init__(self, subject: Subject, seed: int, constant_cases: int) -> None:
        self.subject = subject
        self.seed = seed
        self.constant_cases = constant_cases
        self.name = subject.family.name
        self._drawn: dict[tuple[str, int, int], list[Scenario]] = {}
        # by difficulty: the right answers of the train cases, field by field the most common one, and the
        # answer that earns most when every train case gets it
        self.list_golds = cache(self._list_golds)
        self.majority = cache(self._find_majority)
        self.best_constant = cache(self._search_constant)

    def draw(self, split: Split, difficulty: int, count: int, seed: int | None = None) -> list[Scenario]:
        """Return the first `count` cases of a stream; kept for the next call."""
        seed = self.seed if seed is None else seed
        kept = self._drawn.setdefault((split, difficulty, seed), [])
        for index in range(len(kept), count):
            kept.append(self.subject.family.generate(split, seed, index, difficulty))
        return kept[:count]

    def draw_attacks(
        self, count: int, difficulties: Sequence[int], what: str, attacks_per_case: int = 1
    ) -> list[Attack]:
        """Attacks on validation cases of these difficulties in turn; `what` names their stream of chance."""
        attacks = []
        for number in range(count):
            turn, place = divmod(number // attacks_per_case, len(difficulties))
            *_, scenario, other = self.draw("validation", difficulties[place], turn + 2)
            attacks.append(self.prepare(scenario, other, f"{what}/{number}"))
        return attacks

    def prepare(self, scenario: Scenario, other: Scenario, what: str) -> Attack:
        """Return an attack on the scenario by somebody who knows its gold and another case's."""
        solve = self.subject.family.solve
        return Attack(
            subject=self.subject,
            scenario=scenario,
            gold=solve(scenario),
            other=solve(other),
            rng=random.Random(f"audit/{what}/{self.seed}/{scenario.key}"),
        )

    def _list_golds(self, difficulty: int) -> list[Answer]:
        cases = self.draw("train", difficulty, self.constant_cases)
        return [self.subject.family.solve(case) for case in cases]

    def _find_majority(self, difficulty: int) -> Answer:
        golds = self.list_golds(difficulty)
        texts = {name: Counter(json.dumps(gold[name]) for gold in golds) for name in self.subject.fields}
        return {name: json.loads(counts.most_common(1)[0][0]) for name, counts in texts.items()}

    def _search_constant(self, difficulty: int) -> Answer:
        """Coordinate ascent from several starts."""
        cases = self.draw("train", difficulty, self.constant_cases)
        rng = random.Random(f"audit/constant/{self.seed}/{difficulty}")
        baseline: Answer = json.loads(self.subject.family.baselines["constant"](cases[0], rng))
        majority = self.majority(difficulty)
        drawn = [draw_answer(self.subject, cases[0], rng) for _ in range(NUM_DRAWN_STARTS)]
        starts = [baseline, max(drawn, key=lambda answer: self._mean_reward(answer, cases))]
        if has_form(self.subject, cases[0], majority):
            starts.append(majority)
        golds = self.list_golds(difficulty)
        likely = {
            name: [
                number for number, _ in Counter(gold[name] for gold in golds).most_common(NUM_LIKELY_NUMBERS)
            ]
            for name, field in self.subject.fields.items()
            if field.kind == "number"
        }
        climbed = [self._climb(start, cases, likely) for start in starts]
        return max(climbed, key=lambda found: found[1])[0]

    def _climb(
        self, answer: Answer, cases: Sequence[Scenario], likely: dict[str, list[int]]
    ) -> tuple[Answer, float]:
        reward = self._mean_reward(answer, cases)
        for _ in range(MOST_SWEEPS):
            steps = list(step_away(self.subject, cases[0], answer, lambda name, _: likely[name]))
            rewards = [self._mean_reward(step, cases) for step in steps]
            if max(rewards, default=0.0) <= reward:
                break
            reward = max(rewards)
            answer = steps[rewards.index(reward)]
        return answer, reward

    def _mean_reward(self, answer: Answer, cases: Sequence[Scenario]) -> float:
        text = json.dumps(answer)
        return fmean(self.subject.family.verify(case, text).reward for case in cases)
