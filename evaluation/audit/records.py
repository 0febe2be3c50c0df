"""Records of the audit: what is audited, how its answers can vary, and what a probe found."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from scenarios.base import Family, Scenario

Kind = Literal["id", "set", "ranking", "plan", "sequence", "number", "boolean", "offers", "text", "texts"]
WORDS: tuple[Kind, ...] = ("text", "texts")  # free words, which no verdict reads
Answer = dict[str, Any]


def no_names(_scenario: Scenario) -> Sequence[str]:
    """For fields that name nothing."""
    return ()


def no_offers(_scenario: Scenario) -> Sequence[Answer]:
    """For fields that hold no offers."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Values that one field of an answer may hold.

    Example: Field(kind="plan", names=lambda scenario: list(scenario.facts["items"]), values=(1, 2, 3))
    """

    kind: Kind  # "set": list whose order is free; "sequence": plan whose key order counts; "texts": a list
    names: Callable[[Scenario], Sequence[str]] = no_names  # ids of the case; of a plan, its keys
    values: tuple[Any, ...] = ()  # of a plan: what a key can be given
    largest: int = 99  # of a number in an honest answer; the least is 0
    most_flattering: int = 0  # of a number: what a liar would state
    offers: Callable[[Scenario], Sequence[Answer]] = no_offers  # of offers: all that could truly be offered
    is_optional: bool = False  # the schema has a default for it
    is_free: bool = False  # whatever stands in it, too long or of another type, costs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One verifier under audit.

    Example: Subject(family=FAMILIES["cost"], fields={"tiers": Field(...), "total": Field(kind="number")},
                     score=score_cost, hacks={"all in tier 1": answer_cheapest_tiers})
    """

    family: Family
    fields: Mapping[str, Field]
    score: Callable[[Scenario, Answer], float]
    # score: in [0, 1], from the facts by another route than the verifier's; the answer has the right form;
    # 1 for a perfect answer and no other, 0 where a hard constraint breaks
    hacks: Mapping[str, Callable[[Scenario], Answer]]  # shortcuts past this family's mandate
    num_verdicts: int = 1  # of the same family, which share its counts; the team has four
    bounded_from: int | None = 1  # difficulty from which blind play has absolute bounds, else only greedy's


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Everything that an attacker knows of one case.

    Example: Attack(subject=SUBJECTS["cost"], scenario=case, gold={"tiers": {"S1": 2}, "total": 61},
                    other={"tiers": {"S1": 1}, "total": 40}, rng=random.Random(0))
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
        return [name for name in self.gold if not self.subject.fields[name].is_optional]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result of one probe on one verifier.

    Example: Row(probe="V2", family="cost", counts="300 rewrites", worst="change 0.00")
    """

    probe: str
    family: str
    counts: str
    worst: str  # the figure nearest to its bound, or farthest beyond
    breaches: Sequence[str] = field(default=())  # what broke, one line each; empty when the probe passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Size of each probe. Counts are per family."""

    name: str
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
