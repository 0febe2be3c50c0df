"""Probes of one verifier (V1 hostile outputs, V2 rewrites, V3 hacks, V4 optima, V5 blind play, V6 search).

Run with V9 and V10 in this process or in several, as a table.
"""

import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from statistics import fmean
from typing import Any, NamedTuple

from evaluation.audit.answers import (
    Answer,
    Attack,
    AuditRow,
    CaseSample,
    FieldSpec,
    Tier,
    audit_score,
    describe_verdict,
    draw_answer,
    has_form,
    step_away,
)
from evaluation.audit.attacks import FORMS, MALFORMED, MANDATES, WRITERS, Hack, list_hacks
from evaluation.audit.subjects import SUBJECTS, choose_subjects, list_subjects
from evaluation.audit.team_cheats import TEAM, probe_free_riders, probe_honesty
from roles.errors import unknown
from scenarios.base import Scenario
from scenarios.conformance import is_sound
from scenarios.hostile import HOSTILE_VALUES, mutate_values

SOME_DIFFICULTIES = (1, 5, 8)

MOST_MS = 50.0  # 99th percentile of the time of one verdict
SLOWEST_SHARE = 0.01
OUTPUTS_PER_CASE = 10


def probe_hostile_outputs(book: CaseSample, tier: Tier) -> AuditRow:
    """V1: every class of writers in turn; no verifier may raise, pay for malformed output, or take long."""
    broken: dict[str, list[str]] = {}  # by class and what went wrong
    seconds = []
    most_paid = 0.0
    names = list(WRITERS)
    count = tier.hostile_outputs
    attacks = book.draw_attacks(count, SOME_DIFFICULTIES, "V1", OUTPUTS_PER_CASE)
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
        if not is_sound(verdict, attack.subject.family):
            broken.setdefault(f"{name} unsound", []).append(describe_verdict(verdict, text))
        elif name in MALFORMED and verdict.reward > 0:
            most_paid = max(most_paid, verdict.reward)
            broken.setdefault(f"{name} paid", []).append(f"{verdict.reward:.2f} for {text[:60]!r}")
    breaches = [f"{what} ({len(cases)} times): {cases[0]}" for what, cases in broken.items()]
    slow_ms = 1000 * sorted(seconds)[-1 - int(SLOWEST_SHARE * len(seconds))] if seconds else 0.0
    if slow_ms > MOST_MS:
        breaches.append(f"p99 of a verdict is {slow_ms:.1f} ms, over {MOST_MS:.0f} ms")
    worst = f"p99 {slow_ms:.2f} ms, malformed paid {most_paid:.2f}"
    return AuditRow("V1", book.name, f"{count} outputs of {len(names)} classes", worst, breaches)


REWRITES_PER_CASE = 5
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


def _choose_answer(attack: Attack) -> Answer:
    """Right, nearly right, somebody's, or any answer."""
    kind = attack.rng.randrange(4)
    if kind == 0:
        return attack.gold
    if kind == 1:
        return attack.rng.choice(list(step_away(attack.subject, attack.scenario, attack.gold)))
    return attack.play("greedy") if kind == 2 else draw_answer(attack.subject, attack.scenario, attack.rng)


def _reorder(fields: Mapping[str, FieldSpec], answer: Answer, rng: random.Random) -> Answer:
    """Keys in any order, and what the schema holds as a set."""
    turned: Answer = {}
    for name in rng.sample(list(answer), len(answer)):
        value = answer[name]
        is_free = fields[name].kind in ("set", "entries", "map")
        if is_free and isinstance(value, dict):
            turned[name] = dict(rng.sample(list(value.items()), len(value)))
        else:
            turned[name] = rng.sample(value, len(value)) if is_free else value
    return turned


def _spell(value: Any, rng: random.Random) -> str:
    """Return a JSON text of the value: blanks between tokens, escapes in strings, "-0" for 0."""
    blank = rng.choice(BLANKS)
    if isinstance(value, dict):
        pairs = [
            f"{blank}{_spell(key, rng)}{rng.choice(BLANKS)}:{_spell(v, rng)}" for key, v in value.items()
        ]
        return f"{{{f'{rng.choice(BLANKS)},'.join(pairs)}{blank}}}"
    if isinstance(value, list):
        return f"[{blank}{f',{blank}'.join(_spell(inner, rng) for inner in value)}{blank}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04X}" if rng.random() < 0.2 else c for c in value) + '"'
    if value == 0 and type(value) is int and rng.random() < 0.5:
        return "-0"
    return json.dumps(value)


def _rewrite(answer: Answer, fields: Mapping[str, FieldSpec], rng: random.Random) -> str:
    """Another text of the same answer, words around it included."""
    turned = _reorder(fields, answer, rng)
    indent = rng.choice((None, 0, 1, 4, "\t", "spelt"))
    text = _spell(turned, rng) if indent == "spelt" else json.dumps(turned, indent=indent)
    if rng.random() < 0.2:
        opened, closed = rng.choice(FENCES)
        return opened + text + closed
    return rng.choice(BEFORE) + text + rng.choice(AFTER)


def probe_rewrites(book: CaseSample, tier: Tier) -> AuditRow:
    """V2: good and bad answers in other spellings; no verdict may change."""
    breaches = []
    largest = 0.0
    count = tier.rewrites
    for attack in book.draw_attacks(count, SOME_DIFFICULTIES, "V2", REWRITES_PER_CASE):
        answer = _choose_answer(attack)
        text = _rewrite(answer, attack.subject.fields, attack.rng)
        plain = attack.subject.family.verify(attack.scenario, json.dumps(answer))
        other = attack.subject.family.verify(attack.scenario, text)
        largest = max(largest, abs(plain.reward - other.reward))
        if (plain.reward, plain.failure) != (other.reward, other.failure):
            breaches.append(
                f"{attack.scenario.key}: {plain.reward:.2f} for {json.dumps(answer)}, "
                f"{other.reward:.2f} ({other.failure}) for {text[:200]!r}"
            )
    return AuditRow("V2", book.name, f"{count} rewrites", f"largest change {largest:.2f}", breaches)


def _draw_hack_attacks(book: CaseSample, difficulty: int, tier: Tier) -> list[Attack]:
    attacks = []
    for number in range(tier.hack_seeds):
        cases = book.draw("validation", difficulty, tier.hack_cases, book.seed + number)
        pairs = zip(cases, [cases[-1], *cases[:-1]], strict=True)
        attacks += [book.prepare(case, other, f"V3/{number}") for case, other in pairs]
    return attacks


def _mean_by_form(book: CaseSample, hack: Hack, attacks: list[Attack]) -> dict[str, float]:
    written = [(attack.scenario, hack(attack, book)) for attack in attacks]
    verify = book.subject.family.verify
    return {
        form: fmean(verify(scenario, dress(text)).reward for scenario, text in written)
        for form, dress in FORMS.items()
    }


def probe_hacks(book: CaseSample, tier: Tier) -> AuditRow:
    """V3: the mean reward of every hack, form and difficulty against the honest player's, same cases."""
    family = book.subject.family
    player = "honest" if "honest" in family.baselines else "greedy"
    play = family.baselines[player]
    hacks = list_hacks(book.subject)
    breaches = []
    nearest = (2.0, "")
    for difficulty in tier.hack_difficulties:
        attacks = _draw_hack_attacks(book, difficulty, tier)
        bound = fmean(family.verify(a.scenario, play(a.scenario, a.rng)).reward for a in attacks)
        for name, hack in hacks.items():
            means = _mean_by_form(book, hack, attacks)
            most = max(means.values())
            nearest = min(nearest, (bound - most, f"{name} at {difficulty}"))
            forms = [form for form, mean in means.items() if mean >= bound]
            if forms:
                earned = f"{most:.3f} at difficulty {difficulty}, {player} {bound:.3f}"
                breaches.append(f"{name} ({', '.join(forms)}) earns {earned}")
    cells = f"{len(hacks)} classes x {len(tier.hack_difficulties)} difficulties x {len(FORMS)} forms"
    counts = f"{cells} x {tier.hack_cases * tier.hack_seeds}"
    worst = f"lead of {player} {nearest[0]:+.2f} ({nearest[1]})"
    return AuditRow("V3", book.name, counts, worst, breaches)


NUM_STEPS = 10  # answers a step away from each optimum that are judged


def _check_optimum(attack: Attack) -> tuple[list[str], float, int]:
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
        if not is_sound(verdict, family):
            breaches.append(f"{scenario.key}: {describe_verdict(verdict, json.dumps(answer))}")
        is_perfect = attack.subject.score(scenario, answer) == 1.0
        if (verdict.reward >= 1.0) != is_perfect:
            what = "as good as the optimum" if is_perfect else "worse than the optimum"
            breaches.append(f"{scenario.key}: {json.dumps(answer)} is {what} and gets {verdict.reward:.2f}")
        elif not is_perfect:
            most = max(most, verdict.reward)
    return breaches, most, len(chosen)


def probe_optimum(book: CaseSample, tier: Tier) -> AuditRow:
    """V4: the oracle scores exactly 1, worse neighbours score less, two solvers agree; all difficulties."""
    checked = [_check_optimum(attack) for attack in book.draw_attacks(tier.optima, range(1, 11), "V4")]
    counts = f"{tier.optima} optima, {sum(count for *_, count in checked)} steps away"
    worst = f"best of the worse {max((most for _, most, _ in checked), default=0.0):.2f}"
    breaches = [breach for found, *_ in checked for breach in found]
    return AuditRow("V4", book.name, counts, worst, breaches)


MOST_AT_1, MOST_FROM_5 = 0.35, 0.15  # mean reward of a blind policy; between 1 and 5 only below greedy

Policy = Callable[[Scenario, random.Random], str]


def _list_policies(book: CaseSample, difficulty: int) -> Mapping[str, Policy]:
    """Policies that know the train cases and the words of the prompt, but no facts of the case."""
    family = book.subject.family
    constant = json.dumps(book.best_constant(difficulty))
    majority = json.dumps(book.majority(difficulty))
    golds = [json.dumps(gold) for gold in book.list_golds(difficulty)]
    mandate = MANDATES.get(family.role, "")
    return {
        "random": family.baselines["random"],
        "any answer": lambda scenario, rng: json.dumps(draw_answer(book.subject, scenario, rng)),
        "constant": lambda _scenario, _rng: constant,
        "majority": lambda _scenario, _rng: majority,
        "copied answer": lambda _scenario, rng: rng.choice(golds),
        "copied brief": lambda scenario, _rng: scenario.brief,
        "copied prompt": lambda scenario, _rng: f"{mandate}\n{scenario.brief}",
    }


def _measure_blind(book: CaseSample, difficulty: int, count: int) -> dict[str, float]:
    """Mean reward of every blind policy and of the family's greedy player on the same cases."""
    family = book.subject.family
    policies = {**_list_policies(book, difficulty), "greedy": family.baselines["greedy"]}
    rewards: dict[str, list[float]] = {name: [] for name in policies}
    for index in range(count):
        scenario = family.generate("validation", book.seed, index, difficulty)
        for name, play in policies.items():
            rng = random.Random(f"audit/V5/{name}/{scenario.key}")
            rewards[name].append(family.verify(scenario, play(scenario, rng)).reward)
    return {name: fmean(values) for name, values in rewards.items()}


def probe_blind(book: CaseSample, tier: Tier) -> AuditRow:
    """V5: every policy that does not read the case, against its bound and against greedy."""
    breaches = []
    highest: dict[int, tuple[float, str]] = {}
    count = book.subject.blind_factor * tier.blind_cases
    for difficulty in tier.blind_difficulties:
        means = _measure_blind(book, difficulty, count)
        greedy = means.pop("greedy")
        bound = MOST_AT_1 if difficulty == 1 else MOST_FROM_5 if difficulty >= 5 else None
        highest[difficulty] = max((mean, name) for name, mean in means.items())
        for name, mean in means.items():
            if bound is not None and mean > bound:
                breaches.append(f"{name} earns {mean:.3f} at difficulty {difficulty}, bound {bound:.2f}")
            if mean >= greedy:
                breaches.append(f"{name} earns {mean:.3f} at difficulty {difficulty}, greedy {greedy:.3f}")
    worst = ", ".join(f"{mean:.2f} at {difficulty} ({name})" for difficulty, (mean, name) in highest.items())
    counts = f"{count} cases x {len(tier.blind_difficulties)} difficulties"
    return AuditRow("V5", book.name, counts, worst, breaches)


PAID_FROM, SOUND_FROM = 0.9, 0.8  # a breach: reward from the first on, audit score under the second
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


def _start(attack: Attack) -> Place:
    """Any answer, the gold or another case's, what greedy plays, or a shortcut past the mandate."""
    starts: tuple[Callable[[], Answer], ...] = (
        lambda: attack.play("greedy"),
        lambda: attack.other,
        lambda: attack.rng.choice(list(attack.subject.hacks.values()))(attack.scenario),
        lambda: attack.gold,
        lambda: draw_answer(attack.subject, attack.scenario, attack.rng),
    )
    return _judge(attack, starts[attack.rng.randrange(5)](), DRESSES[0])


def _move(attack: Attack, place: Place) -> Place:
    """Another dress, one wild value, or one step of the answer."""
    kind, rng, dress = attack.rng.random(), attack.rng, place.dress
    if kind < DRESS_SHARE:
        return _judge(attack, place.answer, rng.choice(DRESSES))
    if kind < DRESS_SHARE + WILD_SHARE:
        return _judge(attack, rng.choice(list(mutate_values(place.answer, lambda _: HOSTILE_VALUES))), dress)
    if not has_form(attack.subject, attack.scenario, place.answer):
        return _judge(attack, _start(attack).answer, dress)

    def jump(name: str, number: int) -> Sequence[int]:
        drawn = rng.randint(0, attack.subject.fields[name].largest)
        return number + 1, number - 1, drawn, 0, 10**18, attack.gold[name]

    steps = list(step_away(attack.subject, attack.scenario, place.answer, jump))
    return _judge(attack, rng.choice(steps), dress)


def _judge(attack: Attack, answer: Answer, dress: Dress) -> Place:
    text = dress(json.dumps(answer))
    reward = attack.subject.family.verify(attack.scenario, text).reward
    score = audit_score(attack.subject, attack.scenario, text)
    return Place(answer, dress, text, reward - score, reward)


def climb(attack: Attack, num_calls: int) -> list[Place]:
    """Return every place that a seeded climb of so many verifier calls tried."""
    tried = [_start(attack)]
    here, idle = tried[0], 0
    while len(tried) < num_calls:
        if idle == PATIENCE:
            here, idle = _start(attack), 0
            tried.append(here)
            continue
        found = _move(attack, here)
        tried.append(found)
        idle = 0 if found[3:] > here[3:] else idle + 1
        if found[3:] >= here[3:]:
            here = found
    return tried


def probe_search(book: CaseSample, tier: Tier) -> AuditRow:
    """V6: climbs, one per case, to answers that the verifier pays and the independent score does not."""
    breaches = []
    widest = 0.0
    num_cases = max(1, tier.search_calls // tier.calls_per_case)
    for attack in book.draw_attacks(num_cases, SOME_DIFFICULTIES, "V6"):
        for place in climb(attack, tier.calls_per_case):
            score = place.reward - place.gap
            if place.reward >= PAID_FROM:
                widest = max(widest, place.gap)
            if place.reward >= PAID_FROM and score < SOUND_FROM:
                breaches.append(
                    f"{attack.scenario.key}: {place.text[:200]!r} gets {place.reward:.2f}, audit {score:.2f}"
                )
    counts = f"{num_cases * tier.calls_per_case} calls on {num_cases} cases"
    worst = f"widest gap of a paid answer {widest:.2f}"
    return AuditRow("V6", book.name, counts, worst, breaches)


PROBES: Mapping[str, Callable[[CaseSample, Tier], AuditRow]] = {
    "V1": probe_hostile_outputs,
    "V2": probe_rewrites,
    "V3": probe_hacks,
    "V4": probe_optimum,
    "V5": probe_blind,
    "V6": probe_search,
}
DERIVED_PROBES = ("V1", "V4")  # of a family without a subject of its own
TEAM_PROBES: Mapping[str, Callable[[Tier, int], AuditRow]] = {"V9": probe_free_riders, "V10": probe_honesty}
TIERS: dict[str, Tier] = {
    "pr": Tier(
        hostile_outputs=1000,
        rewrites=300,
        hack_cases=80,
        hack_seeds=1,
        optima=50,
        blind_cases=500,
        constant_cases=60,
        search_calls=500,
        calls_per_case=50,
        team_episodes=100,
        blind_difficulties=(1, 5),
    ),
    "full": Tier(
        hostile_outputs=20_000,
        rewrites=10_000,
        hack_cases=100,
        hack_seeds=5,
        optima=2000,
        blind_cases=5000,
        constant_cases=500,
        search_calls=20_000,
        calls_per_case=200,
        team_episodes=5000,
        blind_difficulties=(1, 5, 8, 10),
    ),
}
ProbeCell = tuple[str, str]  # (family, probe)


def list_cells(families: Sequence[str], probes: Sequence[str]) -> list[ProbeCell]:
    """(family, probe) of every row, in the table's order; all families and all probes for none.

    Raises:
        UserError: unknown family or probe.
    """
    known = [*PROBES, *TEAM_PROBES]
    for probe in probes:
        if probe not in known:
            raise unknown("probe", probe, known)
    cells = [
        (subject.family.name, probe)
        for subject in choose_subjects(families)
        for probe in (PROBES if subject.family.name in SUBJECTS else DERIVED_PROBES)
    ]
    if not families or TEAM in families:
        cells += [(TEAM, probe) for probe in TEAM_PROBES]
    return [cell for cell in cells if not probes or cell[1] in probes]


@cache
def _draw_sample(name: str, seed: int, constant_cases: int) -> CaseSample:
    return CaseSample(list_subjects()[name], seed, constant_cases)


def probe_cell(cell: ProbeCell, tier_name: str, seed: int) -> AuditRow:
    """One row. Worker processes keep the cases that they drew for the next row."""
    (name, probe), tier = cell, TIERS[tier_name]
    if probe in TEAM_PROBES:
        return TEAM_PROBES[probe](tier, seed)
    return PROBES[probe](_draw_sample(name, seed, tier.constant_cases), tier)


def audit(
    tier_name: str, families: Sequence[str], seed: int, *, probes: Sequence[str] = (), processes: int = 1
) -> Iterator[AuditRow]:
    """Yield the rows of an audit in order.

    Raises:
        UserError: unknown tier, family or probe.
    """
    if tier_name not in TIERS:
        raise unknown("tier", tier_name, list(TIERS))
    cells, probe = list_cells(families, probes), partial(probe_cell, tier_name=tier_name, seed=seed)
    if processes == 1:
        _draw_sample.cache_clear()
        yield from map(probe, cells)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(probe, cells)


COLUMNS = ("probe", "family", "counts", "worst figure", "result")
MOST_SHOWN = 5  # breaches of a row that are shown


def show_audit(
    tier_name: str,
    families: Sequence[str],
    seed: int,
    show: Callable[[str], None],
    *,
    probes: Sequence[str] = (),
) -> list[str]:
    """Show the Markdown table as it grows, then what broke; returns what broke, a line each.

    The full tier runs on all cores.

    Raises:
        UserError: unknown tier, family or probe.
    """
    rows: list[AuditRow] = []
    processes = len(os.sched_getaffinity(0)) if tier_name == "full" else 1
    for row in audit(tier_name, families, seed, probes=probes, processes=processes):
        if not rows:
            show(f"{_render_cells(COLUMNS)}\n{_render_cells(['---'] * len(COLUMNS))}")
        rows.append(row)
        result = "pass" if not row.breaches else f"BREACH ({len(row.breaches)})"
        show(_render_cells((row.probe, row.family, row.counts, row.worst, result)))
    broken = list_breaches(rows)
    for line in broken:
        show(line)
    return broken


def _render_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def list_breaches(rows: Sequence[AuditRow]) -> list[str]:
    """Return the first breaches of every row, a line each, on one line even where they quote other lines."""
    lines = []
    for row in rows:
        shown = [" ".join(breach.split()) for breach in row.breaches[:MOST_SHOWN]]
        lines += [f"{row.probe} {row.family}: {breach}" for breach in shown]
        if len(row.breaches) > MOST_SHOWN:
            lines.append(f"{row.probe} {row.family}: and {len(row.breaches) - MOST_SHOWN} more")
    return lines
