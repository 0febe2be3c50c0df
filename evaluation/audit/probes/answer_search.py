"""V6: searches by hill-climbing for answers that the verifier pays and the independent score does not."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.families.independent_parser import audit_score
from evaluation.audit.probes.answer_variants import draw_answer, has_form, step_away
from evaluation.audit.probes.reward_hacks import FORMS
from evaluation.audit.records import Answer, Attack, Row, Tier
from scenarios.hostile import HOSTILE_VALUES, mutate_values

PAID_FROM, SOUND_FROM = 0.9, 0.8  # a breach: reward from the first on, audit score under the second
DIFFICULTIES = (1, 5, 8)
PATIENCE = 25  # calls without progress after which the climb starts anew
DRESS_SHARE, WILD_SHARE = 0.15, 0.15  # of moves

Dress = Callable[[str], str]
DRESSES: tuple[Dress, ...] = (
    *FORMS.values(),
    lambda text: f"{text}\n{text}",
    lambda text: f"{text[:-1]}, {text[1:]}",
    lambda text: text[:-1],
    lambda text: f'{text[:-1]}, "note": 1}}',
    lambda text: text.replace('"', "'"),
    lambda text: text.lower(),
    lambda text: text.replace(": ", ": +"),
    lambda text: f"[{text}]",
)


class Place(NamedTuple):
    """State of one climb, ordered by the gap between verifier and independent score, then by reward."""

    answer: Answer
    dress: Dress
    text: str
    gap: float  # reward - audit score
    reward: float


def _start(attack: Attack) -> Answer:
    """Any answer, the gold or another case's, what greedy plays, or a shortcut past the mandate."""
    kind = attack.rng.randrange(5)
    if kind == 0:
        greedy: Answer = json.loads(attack.subject.family.baselines["greedy"](attack.scenario, attack.rng))
        return greedy
    if kind == 1:
        return attack.other
    if kind == 2:
        return attack.rng.choice(list(attack.subject.hacks.values()))(attack.scenario)
    return attack.gold if kind == 3 else draw_answer(attack.subject, attack.scenario, attack.rng)


def _jump_from(attack: Attack) -> Callable[[str, int], Sequence[int]]:
    def numbers(name: str, number: int) -> Sequence[int]:
        drawn = attack.rng.randint(0, attack.subject.fields[name].largest)
        return number + 1, number - 1, drawn, 0, 10**18, attack.gold[name]

    return numbers


def _move(attack: Attack, place: Place) -> tuple[Answer, Dress]:
    """Another dress, one wild value, or one step of the answer."""
    kind = attack.rng.random()
    if kind < DRESS_SHARE:
        return place.answer, attack.rng.choice(DRESSES)
    if kind < DRESS_SHARE + WILD_SHARE:
        return attack.rng.choice(list(mutate_values(place.answer, lambda _: HOSTILE_VALUES))), place.dress
    if not has_form(attack.subject, attack.scenario, place.answer):
        return _start(attack), place.dress
    return attack.rng.choice(
        list(step_away(attack.subject, attack.scenario, place.answer, _jump_from(attack)))
    ), place.dress


def _judge(attack: Attack, answer: Answer, dress: Dress) -> Place:
    text = dress(json.dumps(answer))
    reward = attack.subject.family.verify(attack.scenario, text).reward
    score = audit_score(attack.subject, attack.scenario, text)
    return Place(answer, dress, text, reward - score, reward)


def climb(attack: Attack, num_calls: int) -> list[Place]:
    """Return every place that a seeded climb of so many verifier calls tried."""
    tried = [_judge(attack, _start(attack), DRESSES[0])]
    here, idle = tried[0], 0
    while len(tried) < num_calls:
        if idle == PATIENCE:
            here, idle = _judge(attack, _start(attack), DRESSES[0]), 0
            tried.append(here)
            continue
        found = _judge(attack, *_move(attack, here))
        tried.append(found)
        better = (found.gap, found.reward) > (here.gap, here.reward)
        idle = 0 if better else idle + 1
        if (found.gap, found.reward) >= (here.gap, here.reward):
            here = found
    return tried


def probe_search(book: CaseSample, tier: Tier) -> Row:
    """V6: one climb per case."""
    breaches = []
    widest = 0.0
    num_cases = max(1, tier.search_calls // tier.calls_per_case)
    for attack in book.draw_attacks(num_cases, DIFFICULTIES, "V6"):
        for place in climb(attack, tier.calls_per_case):
            score = place.reward - place.gap
            if place.reward >= PAID_FROM:
                widest = max(widest, place.gap)
            if place.reward >= PAID_FROM and score < SOUND_FROM:
                breaches.append(
                    f"{attack.scenario.key}: {place.text[:200]!r} gets {place.reward:.2f}, audit {score:.2f}"
                )
    return Row(
        probe="V6",
        family=book.name,
        counts=f"{num_cases * tier.calls_per_case} calls on {num_cases} cases",
        worst=f"widest gap of a paid answer {widest:.2f}",
        breaches=breaches,
    )
