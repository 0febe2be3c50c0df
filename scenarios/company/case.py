"""Company cases: structures of all seats, one budget, base values under which the table is needed.

Base values are drawn last: they make the optimum unique, hide it where the case is to be a hidden profile,
and keep the splits apart by their text.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from scenarios.base import Split
from scenarios.company.coordination import reckon_worths
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import Combination, Parts, list_efficient, solve_options
from scenarios.company.optimum import blind_worth
from scenarios.company.records import CompanyCase, Option
from scenarios.company.setting import Setting, draw_setting, draw_structure
from scenarios.company.splits import belongs_to

BUDGET_SHARE = (58, 56, 53, 49, 44, 42, 40, 38, 36, 33)  # percent of what all best parts cost; by difficulty
MOST_SHARE = (85, 85, 80, 75, 70, 70, 70, 70, 85, 85)  # percent of those of the cheapest option
LEAST_BUDGET, MOST_BUDGET = 20, 99
HIDDEN_SHARE = (30, 45, 50, 55, 60, 60, 65, 65, 70, 70)  # percent of cases drawn as a hidden profile
PLAIN_SHARE = 60  # percent of the other cases in which the public favourite is the best option
LEAST_ROOM = 8  # k$ between a blind plan and the optimum
LEAST_BASE, SPREAD_OF_BASES = 10, 25
VETO_FROM, VETO_SHARE = 3, 0.035  # difficulty from which some cases have an option that no part makes fit
MAX_ATTEMPTS = 60  # draws of all structures
NUM_BUDGETS, NUM_BASES = 3, 40  # tried per draw of structures, and per budget


def generate_case(split: Split, seed: int, index: int, difficulty: int) -> CompanyCase:
    """One case; a pure function of its coordinates.

    Raises:
        ValueError: coordinates out of range.
    """
    setting = draw_setting(split, seed, index, difficulty)
    rng = random.Random(f"{setting.key}/money")
    wants_hidden = rng.randrange(100) < HIDDEN_SHARE[difficulty - 1]
    wants_plain = not wants_hidden and rng.randrange(100) < PLAIN_SHARE
    has_veto = difficulty >= VETO_FROM and rng.random() < VETO_SHARE
    vetoed = (rng.choice(list(DOMAINS)), rng.choice(list(setting.names))) if has_veto else None
    for attempt in range(MAX_ATTEMPTS):
        drawn = {
            seat: {
                letter: draw_structure(
                    setting, seat, letter, attempt, "veto" if (seat, letter) == vetoed else "as set"
                )
                for letter in setting.names
            }
            for seat in DOMAINS
        }
        case = CompanyCase(
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            sector=setting.sector.name,
            situation=setting.situation,
            wording=setting.wording,
            options={},
            budget=0,
            rates={seat: terms.rates for seat, terms in setting.terms.items()},
            limits={seat: terms.limits for seat, terms in setting.terms.items()},
            structures={
                seat: {letter: both[0] for letter, both in own.items()} for seat, own in drawn.items()
            },
            parts={seat: {letter: both[1] for letter, both in own.items()} for seat, own in drawn.items()},
        )
        settled = _settle_money(rng, setting, case, wants_hidden, wants_plain)
        if settled is not None:
            return settled
    raise RuntimeError(f"no case {setting.key} in {MAX_ATTEMPTS} draws")


def veto_options(case: CompanyCase, rng: random.Random) -> CompanyCase:
    """The case with a seat on every option whose limit breaks whatever is bought; money stays as it is."""
    setting = draw_setting(case.split, case.seed, case.index, case.difficulty)
    structures = {seat: dict(own) for seat, own in case.structures.items()}
    parts = {seat: dict(own) for seat, own in case.parts.items()}
    for letter in case.options:
        seat = rng.choice(list(DOMAINS))
        structures[seat][letter], parts[seat][letter] = draw_structure(setting, seat, letter, limit="veto")
    return replace(case, structures=structures, parts=parts)


def _settle_money(
    rng: random.Random, setting: Setting, case: CompanyCase, wants_hidden: bool, wants_plain: bool
) -> CompanyCase | None:
    """The case with a budget and with bases under which its optimum is unique; None where nothing fits."""
    letters = list(setting.names)
    dearest = [
        sum(max(own[letter], key=lambda part: part.worth).cost for own in case.parts.values())
        for letter in letters
    ]
    parts = {  # all that can be best is among the efficient ones
        seat: {letter: list_efficient(own[letter]) for letter in letters} for seat, own in case.parts.items()
    }
    most = MOST_SHARE[setting.difficulty - 1]
    for _ in range(NUM_BUDGETS):
        share = BUDGET_SHARE[setting.difficulty - 1] * rng.randint(45, 165)
        budget = sum(dearest) * share // (10_000 * len(letters))
        budget = max(LEAST_BUDGET, min(MOST_BUDGET, budget, min(dearest) * most // 100))
        best = solve_options(parts, letters, budget)
        if len(best) < 2:
            continue
        for bases in _draw_bases(rng, parts, budget, best, letters, wants_hidden):
            if not belongs_to(setting.split, [setting.drawn_sector, budget, list(bases.values())]):
                continue
            totals = {letter: (bases[letter] + found.worth, -found.cost) for letter, found in best.items()}
            first = max(totals, key=totals.__getitem__)
            if best[first].num_ways > 1 or list(totals.values()).count(totals[first]) > 1:
                continue
            if wants_plain and bases[first] < max(bases.values()):
                continue
            options = {
                letter: Option(letter=letter, name=setting.names[letter], base=bases[letter])
                for letter in letters
            }
            settled = replace(case, options=options, budget=budget)
            if totals[first][0] - LEAST_ROOM >= blind_worth(settled):
                return settled
    return None


def _draw_bases(
    rng: random.Random,
    parts: Parts,
    budget: int,
    best: Mapping[str, Combination],
    letters: Sequence[str],
    wants_hidden: bool,
) -> Iterator[dict[str, int]]:
    """Base values to try: as they come, or such that the best option hides behind another."""
    if not wants_hidden:
        for _ in range(NUM_BASES):
            yield {letter: LEAST_BASE + rng.randrange(SPREAD_OF_BASES) for letter in letters}
        return
    pairs = list(_list_hiding_pairs(parts, budget, best))
    for _ in range(NUM_BASES if pairs else 0):
        hidden, front, least, most = rng.choice(pairs)
        bases = {hidden: 0, front: rng.randint(least, most)}
        for letter in letters:
            if letter not in bases:
                reach = best[hidden].worth - best[letter].worth - 1 if letter in best else bases[front]
                bases[letter] = min(bases[front] - 1, reach) - rng.randint(0, SPREAD_OF_BASES // 2)
        shift = LEAST_BASE + rng.randrange(SPREAD_OF_BASES // 2) - min(bases.values())
        yield {letter: bases[letter] + shift for letter in letters}


def _list_hiding_pairs(
    parts: Parts, budget: int, best: Mapping[str, Combination]
) -> Iterator[tuple[str, str, int, int]]:
    """(hidden, front, least, most): how far the base of `front` exceeds that of `hidden`, the better option.

    Within these bounds the public facts and every seat favour another option than `hidden`.
    """
    reckoned = [
        reckon_worths(own, amount) for own in parts.values() for amount in (budget, budget // len(parts))
    ]
    for hidden in best:
        for front in best:
            most = best[hidden].worth - best[front].worth - 1
            least = 1
            for worths in reckoned:
                if hidden in worths:  # a seat that cannot keep its limit there does not name it
                    if front not in worths:
                        least = most + 1
                        break
                    least = max(least, worths[hidden] - worths[front] + 1)
            if hidden != front and least <= most:
                yield hidden, front, least, most
