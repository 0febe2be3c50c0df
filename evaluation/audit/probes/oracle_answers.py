"""V4: checks that the oracle scores exactly 1, worse neighbours score less, and two solvers agree."""

import json

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.answer_variants import describe_verdict, is_sound, step_away
from evaluation.audit.records import Attack, Row, Tier

DIFFICULTIES = tuple(range(1, 11))
NUM_STEPS = 10


def _check_case(attack: Attack) -> tuple[list[str], float, int]:
    """Breaches, the most that a worse answer a step away earns, and how many steps were judged."""
    family, scenario = attack.subject.family, attack.scenario
    breaches = []
    stated, again = family.certify(scenario)
    if stated != again:
        breaches.append(f"{scenario.key}: the oracle says {stated}, the second solver {again}")
    verdict = family.verify(scenario, attack.text)
    if verdict.reward != 1.0:
        breaches.append(f"{scenario.key}: the oracle's answer gets {verdict.reward}")
    score = attack.subject.score(scenario, attack.gold)
    if score != 1.0:
        breaches.append(f"{scenario.key}: the audit gives the oracle's answer {score}")
    steps = list(step_away(attack.subject, scenario, attack.gold))
    chosen = attack.rng.sample(steps, min(NUM_STEPS, len(steps)))
    most = 0.0
    for answer in chosen:
        verdict = family.verify(scenario, json.dumps(answer))
        reward = verdict.reward
        if not is_sound(verdict):
            breaches.append(f"{scenario.key}: {describe_verdict(verdict, json.dumps(answer))}")
        is_perfect = attack.subject.score(scenario, answer) == 1.0
        if (reward >= 1.0) != is_perfect:
            what = "as good as the optimum" if is_perfect else "worse than the optimum"
            breaches.append(f"{scenario.key}: {json.dumps(answer)} is {what} and gets {reward:.2f}")
        elif not is_perfect:
            most = max(most, reward)
    return breaches, most, len(chosen)


def probe_optimum(book: CaseSample, tier: Tier) -> Row:
    """V4: all difficulties in turn."""
    breaches: list[str] = []
    most, judged = 0.0, 0
    num_optima = book.share(tier.optima)
    for attack in book.draw_attacks(num_optima, DIFFICULTIES, "V4"):
        found, highest, count = _check_case(attack)
        breaches += found
        most, judged = max(most, highest), judged + count
    return Row(
        probe="V4",
        family=book.name,
        counts=f"{num_optima} optima, {judged} steps away",
        worst=f"best of the worse {most:.2f}",
        breaches=breaches,
    )
