"""V2: rewrites an answer in other spellings; no verdict may change."""

import json
import random
from collections.abc import Mapping
from typing import Any

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.answer_variants import draw_answer, step_away
from evaluation.audit.records import Answer, Attack, Field, Row, Tier

DIFFICULTIES = (1, 5, 8)
ATTACKS_PER_CASE = 5
BLANKS = ("", "", " ", "\n", "\t", "\r\n", "    ")
BEFORE = (
    "",
    "Final answer: ",
    "<think>A is late [see 3], so B.</think>\n",
    "1. look\n2. weigh\n3. answer\n",
    "\ufeff",
    "Bien s\u00fbr \u2014 voil\u00e0 \U0001f642\n",
    'cost: 12, option: "Z"\n',
    "so " * 2000,
)
AFTER = ("", "\n", " \t", "\r\n", "\n" * 500)
FENCES = (("```json\n", "\n```"), ("Here it is:\n```\n", "```\n"))


def choose_answer(attack: Attack) -> Answer:
    """Right, nearly right, somebody's, or any answer."""
    kind = attack.rng.randrange(4)
    if kind == 0:
        return attack.gold
    if kind == 1:
        return attack.rng.choice(list(step_away(attack.subject, attack.scenario, attack.gold)))
    if kind == 2:
        greedy = attack.subject.family.baselines["greedy"](attack.scenario, attack.rng)
        answer: Answer = json.loads(greedy)
        return answer
    return draw_answer(attack.subject, attack.scenario, attack.rng)


def reorder(fields: Mapping[str, Field], answer: Answer, rng: random.Random) -> Answer:
    """Keys in any order, and what the schema holds as a set."""
    turned = {}
    for name in rng.sample(list(answer), len(answer)):
        value, kind = answer[name], fields[name].kind
        if kind in ("set", "offers"):
            value = rng.sample(value, len(value))
        elif kind == "plan":
            value = {key: value[key] for key in rng.sample(list(value), len(value))}
        turned[name] = value
    return turned


def spell(value: Any, rng: random.Random) -> str:
    """Return a JSON text of the value: blanks between tokens, escapes in strings, "-0" for 0."""
    blank = rng.choice(BLANKS)
    if isinstance(value, dict):
        pairs = [f"{blank}{spell(key, rng)}{rng.choice(BLANKS)}:{spell(v, rng)}" for key, v in value.items()]
        return f"{{{f'{rng.choice(BLANKS)},'.join(pairs)}{blank}}}"
    if isinstance(value, list):
        return f"[{blank}{f',{blank}'.join(spell(inner, rng) for inner in value)}{blank}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04X}" if rng.random() < 0.2 else c for c in value) + '"'
    if value == 0 and type(value) is int and rng.random() < 0.5:
        return "-0"
    return json.dumps(value)


def rewrite(answer: Answer, fields: Mapping[str, Field], rng: random.Random) -> str:
    """Another text of the same answer, words around it included."""
    turned = reorder(fields, answer, rng)
    indent = rng.choice((None, 0, 1, 4, "\t", "spelt"))
    text = spell(turned, rng) if indent == "spelt" else json.dumps(turned, indent=indent)
    if rng.random() < 0.2:
        opened, closed = rng.choice(FENCES)
        return opened + text + closed
    return rng.choice(BEFORE) + text + rng.choice(AFTER)


def probe_rewrites(book: CaseSample, tier: Tier) -> Row:
    """V2: rewrites of good and bad answers."""
    breaches = []
    largest = 0.0
    count = book.share(tier.rewrites)
    for attack in book.draw_attacks(count, DIFFICULTIES, "V2", ATTACKS_PER_CASE):
        answer = choose_answer(attack)
        text = rewrite(answer, attack.subject.fields, attack.rng)
        plain = attack.subject.family.verify(attack.scenario, json.dumps(answer))
        other = attack.subject.family.verify(attack.scenario, text)
        largest = max(largest, abs(plain.reward - other.reward))
        if (plain.reward, plain.failure) != (other.reward, other.failure):
            breaches.append(
                f"{attack.scenario.key}: {plain.reward:.2f} for {json.dumps(answer)}, "
                f"{other.reward:.2f} ({other.failure}) for {text[:200]!r}"
            )
    return Row(
        probe="V2",
        family=book.name,
        counts=f"{count} rewrites",
        worst=f"largest change {largest:.2f}",
        breaches=breaches,
    )
