"""Draws the cases of one audited verifier once, with what a blind player could learn from its train cases."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from evaluation.audit.answers import Answer, Attack, Subject, draw_answer, has_form, step_away
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
        self.name = subject.family.name
        self._drawn: dict[tuple[str, int, int], list[Scenario]] = {}
        self._learnt: dict[tuple[str, int], Any] = {}

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

    def list_golds(self, difficulty: int) -> list[Answer]:
        """The right answers of the train cases."""
        solve = self.subject.family.solve
        cases = self.draw("train", difficulty, self.constant_cases)
        golds: list[Answer] = self._learn("golds", difficulty, lambda: [solve(case) for case in cases])
        return golds

    def majority(self, difficulty: int) -> Answer:
        """Field by field the most common truth of the train cases."""
        golds = self.list_golds(difficulty)

        def count() -> Answer:
            texts = {name: Counter(json.dumps(gold[name]) for gold in golds) for name in self.subject.fields}
            return {name: json.loads(counts.most_common(1)[0][0]) for name, counts in texts.items()}

        answer: Answer = self._learn("majority", difficulty, count)
        return answer

    def best_constant(self, difficulty: int) -> Answer:
        """The answer that earns most when every train case gets it: coordinate ascent from several starts."""
        answer: Answer = self._learn("constant", difficulty, lambda: self._search_constant(difficulty))
        return answer

    def _learn(self, what: str, difficulty: int, learn: Callable[[], Any]) -> Any:
        if (what, difficulty) not in self._learnt:
            self._learnt[what, difficulty] = learn()
        return self._learnt[what, difficulty]

    def _search_constant(self, difficulty: int) -> Answer:
        cases = self.draw("train", difficulty, self.constant_cases)
        rng = random.Random(f"audit/constant/{self.seed}/{difficulty}")
        baseline: Answer = json.loads(self.subject.family.baselines["constant"](cases[0], rng))
        majority = self.majority(difficulty)
        drawn = [draw_answer(self.subject, cases[0], rng) for _ in range(NUM_DRAWN_STARTS)]
        starts = [baseline, max(drawn, key=lambda answer: self._mean_reward(answer, cases))]
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
        climbed = [self._climb(start, cases, likely) for start in starts]
        return max(climbed, key=lambda found: found[1])[0]

    def _climb(
        self, answer: Answer, cases: Sequence[Scenario], likely: dict[str, list[int]]
    ) -> tuple[Answer, float]:
        reward = self._mean_reward(answer, cases)
        for _ in range(MOST_SWEEPS):
            steps = list(step_away(self.subject, cases[0], answer, lambda name, _: likely[name]))
            rewards = [self._mean_reward(step, cases) for step in steps]
            if max(rewards, default=0.0) <= reward:
                break
            reward = max(rewards)
            answer = steps[rewards.index(reward)]
        return answer, reward

    def _mean_reward(self, answer: Answer, cases: Sequence[Scenario]) -> float:
        text = json.dumps(answer)
        return fmean(self.subject.family.verify(case, text).reward for case in cases)
