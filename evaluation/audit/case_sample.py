"""Draws the cases of one audited verifier once, with what a blind player could learn from its train cases."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

from evaluation.audit.probes.answer_variants import draw_answer, has_form, step_away
from evaluation.audit.records import Answer, Attack, Subject
from scenarios.base import Scenario, Split

NUM_DRAWN_STARTS = 30  # random answers among which the search for the best constant starts
MOST_SWEEPS = 4
NUM_LIKELY_NUMBERS = 4  # of a number field: its most common true values


class CaseSample:
    """One audit's view of a subject: train cases to learn from, validation cases to be judged on."""

    def __init__(self, subject: Subject, seed: int, constant_cases: int) -> None:
        self.subject = subject
        self.seed = seed
        self.constant_cases = constant_cases
        self._drawn: dict[tuple[str, int, int], list[Scenario]] = {}
        self._constants: dict[int, Answer] = {}
        self._golds: dict[int, list[Answer]] = {}
        self._majorities: dict[int, Answer] = {}

    @cached_property
    def name(self) -> str:
        """The subject's family."""
        return self.subject.family.name

    def share(self, count: int) -> int:
        """This verdict's part of a family's count, rounded up."""
        return -(-count // self.subject.num_verdicts)

    def draw(self, split: Split, difficulty: int, count: int, seed: int | None = None) -> list[Scenario]:
        """Return the first `count` cases of a stream; kept for the next call."""
        seed = self.seed if seed is None else seed
        kept = self._drawn.setdefault((split, difficulty, seed), [])
        for index in range(len(kept), count):
            kept.append(self.subject.family.generate(split, seed, index, difficulty))
        return kept[:count]

    def draw_attacks(
        self, count: int, difficulties: Sequence[int], what: str, attacks_per_case: int = 1
    ) -> list[Attack]:
        """Attacks on validation cases of these difficulties in turn; `what` names their stream of chance."""
        attacks = []
        for number in range(count):
            turn, place = divmod(number // attacks_per_case, len(difficulties))
            *_, scenario, other = self.draw("validation", difficulties[place], turn + 2)
            attacks.append(self.prepare(scenario, other, f"{what}/{number}"))
        return attacks

    def prepare(self, scenario: Scenario, other: Scenario, what: str) -> Attack:
        """Return an attack on the scenario by somebody who knows its gold and another case's."""
        solve = self.subject.family.solve
        return Attack(
            subject=self.subject,
            scenario=scenario,
            gold=solve(scenario),
            other=solve(other),
            rng=random.Random(f"audit/{what}/{self.seed}/{scenario.key}"),
        )

    def mean_reward(self, answer: Answer, cases: Sequence[Scenario]) -> float:
        """Return the rewards of one answer on all these cases."""
        text = json.dumps(answer)
        return fmean(self.subject.family.verify(case, text).reward for case in cases)

    def list_golds(self, difficulty: int) -> list[Answer]:
        """The right answers of the train cases."""
        if difficulty not in self._golds:
            cases = self.draw("train", difficulty, self.constant_cases)
            self._golds[difficulty] = [self.subject.family.solve(case) for case in cases]
        return self._golds[difficulty]

    def majority(self, difficulty: int) -> Answer:
        """Field by field (in plans key by key) the most common truth of the train cases."""
        if difficulty not in self._majorities:
            golds = self.list_golds(difficulty)
            self._majorities[difficulty] = {
                name: _most_common([gold[name] for gold in golds]) for name in self.subject.fields
            }
        return self._majorities[difficulty]

    def best_constant(self, difficulty: int) -> Answer:
        """The answer that earns most when every train case gets it: coordinate ascent from several starts."""
        if difficulty not in self._constants:
            self._constants[difficulty] = self._search_constant(difficulty)
        return self._constants[difficulty]

    def _search_constant(self, difficulty: int) -> Answer:
        cases = self.draw("train", difficulty, self.constant_cases)
        rng = random.Random(f"audit/constant/{self.seed}/{difficulty}")
        baseline: Answer = json.loads(self.subject.family.baselines["constant"](cases[0], rng))
        majority = self.majority(difficulty)
        drawn = [draw_answer(self.subject, cases[0], rng) for _ in range(NUM_DRAWN_STARTS)]
        starts = [baseline, max(drawn, key=lambda answer: self.mean_reward(answer, cases))]
        if has_form(self.subject, cases[0], majority):
            starts.append(majority)
        golds = self.list_golds(difficulty)
        likely = {
            name: [
                number for number, _ in Counter(gold[name] for gold in golds).most_common(NUM_LIKELY_NUMBERS)
            ]
            for name, field in self.subject.fields.items()
            if field.kind == "number"
        }
        best, most = baseline, -1.0
        for start in starts:
            answer, reward = self._climb(start, cases, likely)
            if reward > most:
                best, most = answer, reward
        return best

    def _climb(
        self, answer: Answer, cases: Sequence[Scenario], likely: dict[str, list[int]]
    ) -> tuple[Answer, float]:
        reward = self.mean_reward(answer, cases)
        for _ in range(MOST_SWEEPS):
            steps = list(step_away(self.subject, cases[0], answer, lambda name, _: likely[name]))
            rewards = [self.mean_reward(step, cases) for step in steps]
            if max(rewards, default=0.0) <= reward:
                break
            reward = max(rewards)
            answer = steps[rewards.index(reward)]
        return answer, reward


def _most_common(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _most_common([value[key] for value in values if key in value]) for key in keys}
    texts = Counter(json.dumps(value) for value in values)
    return json.loads(texts.most_common(1)[0][0])
