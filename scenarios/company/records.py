"""Records of a company case: its options, the parts of a plan that seats can fund, and the case itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from scenarios.base import Split


class Part(NamedTuple):  # cheap to make: a case has hundreds
    """A purchase that a seat can propose on one option, with its exact cost and worth.

    Example: Part(seat="cto", option="A", choice=("spare gateway",), cost=9, worth=14, keeps_limit=True,
                  figures={"latency": 82, "availability": 9998})
    """

    seat: str
    option: str
    choice: tuple[str, ...]  # names of what is bought, in the structure's order; () buys nothing
    cost: int  # k$ of the one budget, >= 0; 0 for ()
    worth: int  # k$ gained over buying nothing on this option, by the structures; 0 for (); may be negative
    keeps_limit: bool  # whether the seat's hard limit holds on this option with this part
    figures: Mapping[str, int]  # what the seat's structure measures with this part, in natural units


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of the ways that the company can go; all of it is public.

    Example: Option(letter="A", name="hosted switch of the card network", base=30)
    """

    letter: str
    name: str
    base: int  # k$ that the option is worth before any spending


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyCase:
    """One company before one decision, whole. Tables go seat -> option letter.

    A plan is one option and at most one part per seat on it, funded from one budget. It is worth the option's
    base plus the worth of the funded parts; it is worth nothing where a hard limit breaks or the cost is over
    the budget. Unspent money is worth nothing.
    """

    split: Split
    seed: int
    index: int
    difficulty: int  # 1 (easiest) to 10
    sector: str
    situation: str  # what the company faces, in two or three sentences; public
    wording: int = 0  # number of the wording in which the case is told
    options: Mapping[str, Option]  # by letter, in order
    budget: int  # k$ for all seats together; public
    rates: Mapping[str, Mapping[str, int]]  # seat -> what a unit of its figures is worth, in k$
    limits: Mapping[str, Mapping[str, int]]  # seat -> its hard limits, in natural units
    structures: Mapping[str, Mapping[str, Any]]  # what each seat alone sees, as JSON values
    parts: Mapping[
        str, Mapping[str, tuple[Part, ...]]
    ]  # hidden: every part that a seat can propose, () first


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An option and what is funded on it.

    Example: Plan(option="B", funded={"cto": ("spare ledger node",), "risk": ()})
    """

    option: str
    funded: Mapping[str, tuple[str, ...]]  # seat -> choice of its part; a seat that is not named gets ()
