"""V1: feeds malformed and hostile outputs; no verifier may raise, pay for one, or take long."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.answer_variants import change_ids, change_numbers, describe_verdict, is_sound
from evaluation.audit.records import Attack, Row, Tier
from roles.base import MAX_ANSWER_CHARS
from roles.registry import ROLES
from scenarios.hostile import HOSTILE_TEXTS, HOSTILE_VALUES, mutate_values

MOST_MS = 50.0  # 99th percentile of the time of one verdict
SLOWEST_SHARE = 0.01
DIFFICULTIES = (1, 5, 8)
ATTACKS_PER_CASE = 10

Writer = Callable[[Attack], str]


def write_noise(attack: Attack) -> str:
    """Characters of every kind, braces more often than others."""
    ranges = ((0x20, 0x7E), (0x00, 0x1F), (0xA0, 0x24F), (0xD800, 0xDFFF), (0x1F300, 0x1FAFF))
    made = []
    for _ in range(attack.rng.randrange(300)):
        low, high = attack.rng.choice(ranges)
        made.append(
            attack.rng.choice('{}[]":,') if attack.rng.random() < 0.3 else chr(attack.rng.randint(low, high))
        )
    return "".join(made)


def write_known_hostile(attack: Attack) -> str:
    """Return a text of the list that conformance uses."""
    return attack.rng.choice(HOSTILE_TEXTS)


def write_mutant(attack: Attack) -> str:
    """Return the gold with one inner value out of place."""
    return json.dumps(attack.rng.choice(list(mutate_values(attack.gold, lambda _: HOSTILE_VALUES))))


def write_edited(attack: Attack) -> str:
    """Return the gold text with a few characters changed, lost or added."""
    text = list(attack.text)
    for _ in range(attack.rng.randint(1, 4)):
        place = attack.rng.randrange(len(text))
        text[place] = attack.rng.choice(["", text[place] * 2, *'{}[]":,0A\\-'])
    return "".join(text)


def write_huge_lists(attack: Attack) -> str:
    """Thousands of entries where a few belong, within the length limit."""
    size = attack.rng.choice((100, 1000, 2000))
    many: dict[type, Any] = {list: ["A"] * size, dict: {f"P{i}": "A" for i in range(size)}}
    return json.dumps(
        {key: many.get(type(value), value) for key, value in attack.gold.items()}, separators=(",", ":")
    )


def write_huge_numbers(attack: Attack) -> str:
    """Return every number with up to thousands of digits."""
    digits = attack.rng.choice((19, 310, 4000, 4301, 9000))
    sign = attack.rng.choice(("", "-"))
    changed = change_numbers(attack.subject, attack.gold, lambda *_: "@")
    return json.dumps(changed).replace('"@"', sign + "9" * digits)


def write_deep(attack: Attack) -> str:
    """Return the gold at the bottom of many lists or objects, closed or not; the gold itself is no end."""
    depth = attack.rng.choice((50, 400, 900, 3000))
    opening, closing = attack.rng.choice((("[", "]"), ('{"a":', "}")))
    text = '{"a":' + opening * depth + attack.text + closing * depth + "}"
    cut = text if attack.rng.random() < 0.7 else text[: attack.rng.randrange(depth, len(text))]
    return cut[:-1] if cut.endswith(attack.text) else cut


def write_surrogates(attack: Attack) -> str:
    """Ids with lone surrogates, zero-width and right-to-left characters, or look-alikes."""
    odd = attack.rng.choice(("\ud800", "\u200b", "\u202e", "\x00", "\u0410", "\uff21", "\U0001d400"))
    text = json.dumps(
        change_ids(attack.subject, attack.gold, lambda name: name + odd),
        ensure_ascii=attack.rng.random() < 0.5,
    )
    return text if text != attack.text else text.replace('"', odd + '"')


def write_repeated_key(attack: Attack) -> str:
    """One key twice, with the same value or another."""
    key = attack.rng.choice(list(attack.gold))
    value = attack.rng.choice((attack.gold[key], attack.other[key]))
    return f"{attack.text[:-1]}, {json.dumps(key)}: {json.dumps(value)}}}"


def write_no_number(attack: Attack) -> str:
    """NaN, Infinity and their spellings in place of a value."""
    key = attack.rng.choice(attack.required)
    word = attack.rng.choice(("NaN", "Infinity", "-Infinity", "nan", "inf", "1e999", "-1e999", "1.#INF"))
    return json.dumps({**attack.gold, key: "@"}).replace('"@"', word)


def write_prompt(attack: Attack) -> str:
    """Return what the player read: brief, mandate, or both."""
    role = ROLES.get(attack.scenario.role)
    mandate = role.mandate if role else "Vote."
    return attack.rng.choice((attack.scenario.brief, mandate, f"{mandate}\n{attack.scenario.brief}"))


def write_concatenated(attack: Attack) -> str:
    """Two objects, the gold among them; an empty one, which answers nothing, only after it."""
    texts = [attack.text, attack.rng.choice((attack.text, json.dumps(attack.other), "{}"))]
    if texts[1] != "{}":
        attack.rng.shuffle(texts)
    return attack.rng.choice((" ", "\n", ",", "\n\nor rather\n", "")).join(texts)


def write_truncated(attack: Attack) -> str:
    """Return the gold cut off before its end."""
    return attack.text[: attack.rng.randrange(len(attack.text))]


def write_tool_call(attack: Attack) -> str:
    """Return a tool call where the answer belongs."""
    name = attack.rng.choice(("measure", "submit", "final_answer"))
    call = json.dumps({"name": name, "arguments": attack.gold})
    return attack.rng.choice((call, f"<tool_call>\n{call}\n</tool_call>", json.dumps({"tool_calls": [call]})))


def write_special_tokens(attack: Attack) -> str:
    """Tokens of chat templates inside the object."""
    token = attack.rng.choice(("<|im_end|>", "</s>", "<|endoftext|>", "<tool_call>", "[INST]", "<think>"))
    key = attack.rng.choice(attack.required)
    return attack.text.replace(
        f'"{key}":', f'"{key}":{token}' if attack.rng.random() < 0.5 else f'"{token}{key}":'
    )


def write_wrong_types(attack: Attack) -> str:
    """Values in types that only a lenient reader takes."""
    loose: dict[type, Callable[[Any], list[Any]]] = {
        bool: lambda value: [str(value).lower(), int(value), [value]],
        int: lambda value: [str(value), value + 0.5, [value], float(value), value == 1],
        str: lambda value: [[value], {"value": value}, None],
        list: lambda value: [" ".join(map(str, value)), {str(i): v for i, v in enumerate(value)}, None],
        dict: lambda value: [list(value.items()), str(value), None],
    }
    key = attack.rng.choice(attack.required)
    value = attack.gold[key]
    return json.dumps({**attack.gold, key: attack.rng.choice(loose[type(value)](value))})


def write_wrapped(attack: Attack) -> str:
    """Return the gold inside something else."""
    return json.dumps(
        attack.rng.choice(
            ({"answer": attack.gold}, {"answer": attack.text}, {"role": "user", "content": attack.text})
        )
    )


def write_other_keys(attack: Attack) -> str:
    """Return a key too many, one too few, or one in other letters."""
    key = attack.rng.choice(attack.required)
    rest = {k: v for k, v in attack.gold.items() if k != key}
    extra = {attack.rng.choice(("reward", "confidence", "__class__", "")): 1}
    return json.dumps(
        attack.rng.choice(({**attack.gold, **extra}, rest, {**rest, key.upper(): attack.gold[key]}))
    )


def write_too_long(attack: Attack) -> str:
    """Return the gold behind more words than anybody reads."""
    return "so " * (MAX_ANSWER_CHARS // 3) + attack.text + " " * attack.rng.randrange(5)


def write_dialect(attack: Attack) -> str:
    """Nearly JSON: single quotes, comments, trailing commas, bare keys, Python's words."""
    text = attack.text
    first = next(iter(attack.gold))
    return attack.rng.choice(
        (
            text.replace('"', "'"),
            text[:-1] + ",}",
            text[:-1] + "/* final */}",
            text.replace(f'"{first}"', first, 1),
            text.replace(":", "=", 1),
            text.replace("}", ";}", 1),
        )
    )


def write_code(attack: Attack) -> str:
    """Expressions and templates in place of a value."""
    key = attack.rng.choice(attack.required)
    code = (
        "__import__('os').getcwd()",
        "21*2",
        "{{7*7}}",
        "${jndi:ldap://a}",
        "(lambda: 1)()",
        "%s%n",
        "0x2A",
    )
    written = attack.rng.choice(code)
    text = json.dumps({**attack.gold, key: "@"})
    return text.replace('"@"', attack.rng.choice((written, json.dumps(written))))


TOLERATED: Mapping[str, Writer] = {
    "noise": write_noise,
    "known hostile texts": write_known_hostile,
    "mutated gold": write_mutant,
    "edited gold": write_edited,
    "huge lists": write_huge_lists,
    "huge numbers": write_huge_numbers,
}  # may by chance be an answer, and is then judged as one
MALFORMED: Mapping[str, Writer] = {
    "deep nesting": write_deep,
    "surrogates and look-alikes": write_surrogates,
    "repeated key": write_repeated_key,
    "NaN and infinity": write_no_number,
    "copied prompt": write_prompt,
    "concatenated objects": write_concatenated,
    "truncated gold": write_truncated,
    "tool call": write_tool_call,
    "special tokens": write_special_tokens,
    "wrong types": write_wrong_types,
    "wrapped gold": write_wrapped,
    "other keys": write_other_keys,
    "too long": write_too_long,
    "JSON dialects": write_dialect,
    "code": write_code,
}
WRITERS: Mapping[str, Writer] = {**TOLERATED, **MALFORMED}


def probe_hostile_outputs(book: CaseSample, tier: Tier) -> Row:
    """V1: every class of writers in turn."""
    broken: dict[str, list[str]] = {}  # by class and what went wrong
    seconds = []
    most_paid = 0.0
    names = list(WRITERS)
    count = book.share(tier.hostile_outputs)
    attacks = book.draw_attacks(count, DIFFICULTIES, "V1", ATTACKS_PER_CASE)
    for number, attack in enumerate(attacks):
        name = names[number % len(names)]
        text = WRITERS[name](attack)
        start = time.thread_time()
        try:
            verdict = attack.subject.family.verify(attack.scenario, text)
        except Exception as error:
            broken.setdefault(f"{name} raised", []).append(f"{error!r} on {text[:60]!r}")
            continue
        seconds.append(time.thread_time() - start)
        if not is_sound(verdict):
            broken.setdefault(f"{name} unsound", []).append(describe_verdict(verdict, text))
        elif name in MALFORMED and verdict.reward > 0:
            most_paid = max(most_paid, verdict.reward)
            broken.setdefault(f"{name} paid", []).append(f"{verdict.reward:.2f} for {text[:60]!r}")
    breaches = [f"{what} ({len(cases)} times): {cases[0]}" for what, cases in broken.items()]
    slow_ms = 1000 * sorted(seconds)[-1 - int(SLOWEST_SHARE * len(seconds))] if seconds else 0.0
    if slow_ms > MOST_MS:
        breaches.append(f"p99 of a verdict is {slow_ms:.1f} ms, over {MOST_MS:.0f} ms")
    return Row(
        probe="V1",
        family=book.name,
        counts=f"{count} outputs of {len(names)} classes",
        worst=f"p99 {slow_ms:.2f} ms, malformed paid {most_paid:.2f}",
        breaches=breaches,
    )
