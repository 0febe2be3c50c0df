"""The best policy found for seats that offer one part per option without seeing the offers of others.

A small network rates every part that a seat could offer on an option, by what that seat may see: budget, the
options' public worth, its own parts. It was trained outside any language model: on drawn cases the
verifier's exact value of every alternative offer is known, partners' offers are drawn from the policy itself,
and the gradient of the mean value over all alternatives is followed (`python -m scenarios.team.searched`,
about two minutes). The weights are package data; `DIGEST` names them.

It is a habit that demonstrations can show (`searched`) and the ceiling of what seats can reach that do not
see each other; nothing in training or credit reads it.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roles.team import SPECIALISTS
from scenarios.company.records import Part
from scenarios.team.frontier import list_steps
from scenarios.team.offers import is_needed, is_vetoed
from scenarios.team.playable import PlayableCase
from scenarios.team.scenario import TeamScenario, generate

FILE = Path(__file__).with_name("searched.json")
DIGEST = "91d1ed6a9bfc8cd4"
NUM_FEATURES, HIDDEN = 20, 32
DIFFICULTIES = (1, 1, 2, 2, 3, 4, 5, 6)  # of the cases searched on, taking turns
FIRST_INDEX = 5_000_000  # far from the training scenarios of every stage
MOST_OPTIONS, MOST_PARTS = 5, 10
Array = NDArray[np.float64]


def describe_parts(case: PlayableCase, seat: str, option: str, parts: Sequence[Part]) -> list[list[float]]:
    """What a seat sees of each of its parts on an option, one row of NUM_FEATURES numbers per part."""
    public = case.public
    budget = max(1, public.budget)
    own = {letter: list_steps(case, seat, letter) for letter in case.options}
    most = {letter: public.base[letter] + (steps[-1].worth if steps else 0) for letter, steps in own.items()}
    others = [letter for letter in case.options if letter != option] or [option]
    want = sum(steps[-1].cost for steps in own.values() if steps) / len(own)
    before_cost = before_worth = 0
    rows = []
    for place, part in enumerate(parts):
        step = (part.worth - before_worth) / max(1, part.cost - before_cost)
        before_cost, before_worth = part.cost, part.worth
        following = parts[place + 1] if place + 1 < len(parts) else None
        further = (following.worth - part.worth) / max(1, following.cost - part.cost) if following else 0.0
        rows.append(
            [
                part.cost / budget,
                part.worth / budget,
                part.worth / max(1, part.cost) / 5,
                step / 5,
                further / 5,
                float(place == 0),
                float(following is None),
                place / 5,
                parts[-1].cost / budget,
                (public.base[option] - max(public.base[letter] for letter in others)) / 50,
                (most[option] - max(most[letter] for letter in others)) / 50,
                want * len(public.seats) / budget / 3,
                budget / 100,
                float(is_needed(case, seat, option)),
                len(case.options) / 5,
                *(float(seat == one) for one in SPECIALISTS),
                1.0,
            ]
        )
    return rows


def rate(weights: dict[str, Array], features: Array) -> tuple[Array, Array]:
    """(ratings, hidden values) of features of shape (..., NUM_FEATURES)."""
    hidden = np.tanh(features @ weights["first"])
    return hidden @ weights["second"], hidden


@lru_cache(maxsize=1)
def read_weights() -> dict[str, Array]:
    """The weights that were found.

    Raises:
        ValueError: the file is another one than `DIGEST` names.
    """
    text = FILE.read_bytes()
    if hashlib.sha256(text).hexdigest()[:16] != DIGEST:
        raise ValueError(f"{FILE} is not the file that {DIGEST} names; run python -m scenarios.team.searched")
    return {name: np.array(values) for name, values in json.loads(text).items()}


def choose_searched_part(case: PlayableCase, seat: str, option: str) -> Part | None:
    """The part that the policy offers on the option; None where there is nothing to offer."""
    parts = list_steps(case, seat, option)
    if not parts:
        return None
    ratings, _ = rate(read_weights(), np.array(describe_parts(case, seat, option, parts)))
    return parts[int(np.argmax(ratings))]


def _tabulate(cases: Sequence[TeamScenario]) -> dict[str, Any]:
    """Features, costs and worths of all parts as arrays of shape (cases, options, seats, parts, ...)."""
    shape = (len(cases), MOST_OPTIONS, len(SPECIALISTS), MOST_PARTS)
    table = {
        "features": np.zeros((*shape, NUM_FEATURES)),
        "cost": np.zeros(shape),
        "worth": np.zeros(shape),
        "is_part": np.zeros(shape, bool),
        "is_needed": np.zeros(shape[:3], bool),
        "base": np.full(shape[:2], -1e9),
    }
    for number, case in enumerate(cases):
        for place, option in enumerate(case.options):
            table["base"][number, place] = case.public.base[option]
            for seat_place, seat in enumerate(SPECIALISTS):
                parts = list_steps(case, seat, option)[:MOST_PARTS]
                where = (number, place, seat_place)
                # a seat that vetoes has no parts, and what is needed and not offered cannot be run
                table["is_needed"][where] = is_needed(case, seat, option) or is_vetoed(case, seat, option)
                for rank, row in enumerate(describe_parts(case, seat, option, parts)):
                    table["features"][(*where, rank)] = row
                    table["cost"][(*where, rank)] = parts[rank].cost
                    table["worth"][(*where, rank)] = parts[rank].worth
                    table["is_part"][(*where, rank)] = True
    table["budget"] = np.array([case.public.budget for case in cases], float)
    table["blind"] = np.array([float(case.truth["blind"]) for case in cases])
    table["best"] = np.array([float(case.optimum.worth) for case in cases if case.optimum is not None])
    return table


def value_alternatives(table: dict[str, Any], picks: NDArray[np.int64]) -> Array:
    """V of every alternative offer while all other offers stay as picked: (cases, options, seats, parts)."""
    chosen_cost = np.take_along_axis(table["cost"], picks[..., None], -1)[..., 0]
    chosen_worth = np.take_along_axis(table["worth"], picks[..., None], -1)[..., 0]
    offers = np.take_along_axis(table["is_part"], picks[..., None], -1)[..., 0]
    budget = table["budget"][:, None, None]
    num_seats = len(SPECIALISTS)
    totals = np.full((*table["cost"].shape[:3], MOST_PARTS), -1e9)  # worth of the option's best plan
    for seat in range(num_seats):
        others = [one for one in range(num_seats) if one != seat]
        alone = np.full(table["cost"].shape[:2], -1e9)
        for mask in range(2 ** len(others)):
            members = [one for place, one in enumerate(others) if mask >> place & 1]
            left = [one for one in others if one not in members]
            cost = sum((chosen_cost[:, :, one] for one in members), np.zeros(table["cost"].shape[:2]))
            worth = sum((chosen_worth[:, :, one] for one in members), np.zeros(table["cost"].shape[:2]))
            legal = np.ones(cost.shape, bool)
            for one in members:
                legal &= offers[:, :, one]
            for one in left:
                legal &= ~table["is_needed"][:, :, one]
            without = legal & (cost <= table["budget"][:, None]) & ~table["is_needed"][:, :, seat]
            alone = np.where(without, np.maximum(alone, worth), alone)
            own = table["cost"][:, :, seat] + cost[..., None]
            fits = legal[..., None] & (own <= budget) & table["is_part"][:, :, seat]
            reached = np.where(fits, worth[..., None] + table["worth"][:, :, seat], -1e9)
            totals[:, :, seat] = np.maximum(totals[:, :, seat], reached)
        totals[:, :, seat] = np.maximum(totals[:, :, seat], alone[..., None])
    totals += table["base"][:, :, None, None]
    picked = np.take_along_axis(totals[:, :, 0], picks[:, :, 0, None], -1)[..., 0]  # every seat as picked
    elsewhere = np.stack(
        [np.delete(picked, option, axis=1).max(1) for option in range(MOST_OPTIONS)], axis=1
    )  # best of the other options
    worth = np.maximum(totals, elsewhere[:, :, None, None])
    room = (table["best"] - table["blind"])[:, None, None, None]
    return np.asarray(np.clip((worth - table["blind"][:, None, None, None]) / room, 0.0, 1.0))


def _choose(ratings: Array, is_part: NDArray[np.bool_]) -> Array:
    """Softmax over the parts; rows without parts are uniform."""
    masked = np.where(is_part, ratings, -1e9)
    masked -= masked.max(-1, keepdims=True)
    chances = np.exp(masked)
    return np.asarray(chances / chances.sum(-1, keepdims=True))


def search(num_cases: int = 4000, num_steps: int = 1000, seed: int = 0) -> dict[str, Array]:
    """Weights after `num_steps` steps of Adam on minibatches of 500 of `num_cases` training cases."""
    rng = np.random.default_rng(seed)
    cases = []
    for index in range(num_cases):
        case = generate("train", seed, FIRST_INDEX + index, DIFFICULTIES[index % len(DIFFICULTIES)])
        if case.optimum is not None:
            cases.append(case)
    table = _tabulate(cases)
    weights = {
        "first": rng.normal(size=(NUM_FEATURES, HIDDEN)) / NUM_FEATURES**0.5,
        "second": rng.normal(size=HIDDEN) / HIDDEN**0.5,
    }
    moments = {name: (np.zeros_like(one), np.zeros_like(one)) for name, one in weights.items()}
    for step in range(1, num_steps + 1):
        rows = rng.choice(len(cases), size=min(500, len(cases)), replace=False)
        batch = {name: values[rows] for name, values in table.items()}
        ratings, hidden = rate(weights, batch["features"])
        chances = _choose(ratings, batch["is_part"])
        draws = rng.random((*chances.shape[:-1], 1))
        picks = np.minimum((chances.cumsum(-1) < draws).sum(-1), MOST_PARTS - 1)
        values = value_alternatives(batch, picks)
        mean = (chances * values).sum(-1, keepdims=True)
        upward = np.where(batch["is_part"], chances * (values - mean), 0.0) * (30 / len(rows))
        slopes = {
            "second": (upward[..., None] * hidden).sum((0, 1, 2, 3)),
            "first": np.einsum(
                "noskf,noskh->fh", batch["features"], upward[..., None] * weights["second"] * (1 - hidden**2)
            ),
        }
        rate_now = 0.02 * (1 - step / (num_steps + 1))
        for name, slope in slopes.items():
            first, second = moments[name]
            first += 0.1 * (slope - first)
            second += 0.01 * (slope**2 - second)
            scale = np.sqrt(second / (1 - 0.99**step)) + 1e-8
            weights[name] += rate_now * (first / (1 - 0.9**step)) / scale
        if step % 100 == 0:
            drawn = np.take_along_axis(values, picks[..., None], -1)[:, 0, 0, 0]
            print(f"step {step}: mean V of drawn offers {drawn.mean():.3f}", flush=True)
    return weights


def main() -> None:
    """Search, write the weights and print their digest."""
    parser = argparse.ArgumentParser(description="Search the policy and write its weights.")
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    weights = search(options.cases, options.steps)
    text = json.dumps({name: np.round(one, 4).tolist() for name, one in weights.items()})
    FILE.write_text(text)
    print("DIGEST", hashlib.sha256(text.encode()).hexdigest()[:16])


if __name__ == "__main__":
    main()
