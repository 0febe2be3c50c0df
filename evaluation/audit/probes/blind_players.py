"""V5: measures what players earn who do not read the case: random, constant, most common, copied answers."""

import json
import random
from collections.abc import Callable, Mapping
from statistics import fmean

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.answer_variants import draw_answer
from evaluation.audit.records import Row, Tier
from roles.registry import ROLES
from scenarios.base import Scenario

MOST_AT_1, MOST_FROM_5 = 0.35, 0.15  # mean reward of a blind policy; between 1 and 5 only below greedy
FEWEST_CASES = 300  # per difficulty, however a family's count is shared

Policy = Callable[[Scenario, random.Random], str]


def blind_bound(difficulty: int) -> float | None:
    """Return the most that a blind policy may earn on average, None where only greedy bounds it."""
    return MOST_AT_1 if difficulty == 1 else MOST_FROM_5 if difficulty >= 5 else None


def list_policies(book: CaseSample, difficulty: int) -> Mapping[str, Policy]:
    """Policies that know the train cases and the words of the prompt, but no facts of the case."""
    family = book.subject.family
    constant = json.dumps(book.best_constant(difficulty))
    majority = json.dumps(book.majority(difficulty))
    golds = [json.dumps(gold) for gold in book.list_golds(difficulty)]
    mandate = ROLES[family.role].mandate if family.role in ROLES else ""
    return {
        "random": family.baselines["random"],
        "any answer": lambda scenario, rng: json.dumps(draw_answer(book.subject, scenario, rng)),
        "constant": lambda _scenario, _rng: constant,
        "majority": lambda _scenario, _rng: majority,
        "copied answer": lambda _scenario, rng: rng.choice(golds),
        "copied brief": lambda scenario, _rng: scenario.brief,
        "copied prompt": lambda scenario, _rng: f"{mandate}\n{scenario.brief}",
    }


def collect_rewards(book: CaseSample, difficulty: int, count: int) -> dict[str, list[float]]:
    """Rewards of every blind policy and of the family's greedy (and honest) player on the same cases."""
    family = book.subject.family
    players = {name: play for name, play in family.baselines.items() if name in ("greedy", "honest")}
    policies = {**list_policies(book, difficulty), **players}
    rewards: dict[str, list[float]] = {name: [] for name in policies}
    for index in range(count):
        scenario = family.generate("validation", book.seed, index, difficulty)
        for name, play in policies.items():
            rng = random.Random(f"audit/V5/{name}/{scenario.key}")
            rewards[name].append(family.verify(scenario, play(scenario, rng)).reward)
    return rewards


def probe_blind(book: CaseSample, tier: Tier) -> Row:
    """V5: every blind policy against its bound and against greedy."""
    breaches = []
    highest: dict[int, tuple[float, str]] = {}
    count = max(FEWEST_CASES, book.share(tier.blind_cases))
    for difficulty in tier.blind_difficulties:
        rewards = collect_rewards(book, difficulty, count)
        rewards.pop("honest", None)
        means = {name: fmean(values) for name, values in rewards.items()}
        greedy = means.pop("greedy")
        first = book.subject.bounded_from
        bound = None if first is None or difficulty < first else blind_bound(difficulty)
        highest[difficulty] = max((mean, name) for name, mean in means.items())
        for name, mean in means.items():
            if bound is not None and mean > bound:
                breaches.append(f"{name} earns {mean:.3f} at difficulty {difficulty}, bound {bound:.2f}")
            if mean >= greedy:
                breaches.append(f"{name} earns {mean:.3f} at difficulty {difficulty}, greedy {greedy:.3f}")
    worst = ", ".join(f"{mean:.2f} at {difficulty} ({name})" for difficulty, (mean, name) in highest.items())
    return Row(
        probe="V5",
        family=book.name,
        counts=f"{count} cases x {len(tier.blind_difficulties)} difficulties",
        worst=worst,
        breaches=breaches,
    )
