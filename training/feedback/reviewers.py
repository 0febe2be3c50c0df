"""Simulated reviewers: what the verifier would say of an answer, spoilt in a known way.

exact             says what the verifier says
noisy:RATE        says the opposite so often, and corrects with the greedy baseline's answer
biased            prefers answers that claim most for the seat, whatever they are worth
slow              is exact, but judges answers of the stage before: they are old when the label comes
hostile           always says the opposite
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Self

from roles.base import Role
from roles.errors import UserError, unknown
from scenarios.base import Family, Scenario
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.hf_chat import HFChat
from simulator.tool_calls import format_tool_call
from training.feedback.labels import Comparison, Correction, Label, Message, Provenance, VerdictLabel
from training.feedback.rows import read_transcript

Kind = Literal["correction", "comparison", "verdict"]
KINDS: tuple[Kind, ...] = ("correction", "comparison", "verdict")
HABITS = ("exact", "noisy", "biased", "slow", "hostile")
START = datetime(2026, 1, 1, tzinfo=UTC)  # labels of simulated reviewers repeat, their times too
LABEL_S, SLOW_LABEL_S = 20, 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelReviewer:
    """A simulated reviewer. Example: LabelReviewer.parse("noisy:0.1").error_rate == 0.1"""

    habit: str
    error_rate: float = 0.0  # share of labels that say the opposite

    @classmethod
    def parse(cls, text: str) -> Self:
        """A reviewer by name, as on the command line.

        Raises:
            UserError: an unknown habit, or an error rate that is not 0 to 1.
        """
        habit, colon, rate = text.partition(":")
        if habit not in HABITS:
            raise unknown("reviewer", habit, list(HABITS))
        if (habit == "noisy") != bool(colon):
            raise UserError(f"reviewer {text!r}: write noisy:RATE, for example noisy:0.1, or {habit} alone")
        try:
            error_rate = float(rate) if colon else float(habit == "hostile")
        except ValueError:
            error_rate = -1.0
        if not 0 <= error_rate <= 1:
            raise UserError(f"reviewer {text!r}: the error rate must be 0 to 1, for example noisy:0.1")
        return cls(habit=habit, error_rate=error_rate)

    @property
    def name(self) -> str:
        """Identity in labels."""
        rate = f"-{self.error_rate:g}" if self.habit == "noisy" else ""
        return f"simulated-{self.habit}{rate}"

    def is_wrong(self, *key: object) -> bool:
        """Return whether the label of this item says the opposite; the same for equal keys."""
        return random.Random(f"{self.name}/{key}").random() < self.error_rate

    def rate(self, episode: SoloEpisode) -> float:
        """Rating of an answer by the reviewer; higher is better."""
        if self.habit == "biased":
            return claimed_worth(episode.trajectory.final_text)
        return episode.verdict.reward


EXACT = LabelReviewer(habit="exact")


def claimed_worth(text: str) -> float:
    """The largest figure that an answer claims as a worth, else as a cost; 0 where none can be read."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0
    for key in ("worth", "cost"):
        found = [float(value) for value in _find(answer, key) if isinstance(value, int | float)]
        if found:
            return max(found)
    return 0.0


def _find(value: Any, key: str) -> list[Any]:
    if isinstance(value, Mapping):
        own = [value[key]] if key in value else []
        return own + [found for child in value.values() for found in _find(child, key)]
    if isinstance(value, list):
        return [found for child in value for found in _find(child, key)]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWriter:
    """Turns plays of one role into labels of one kind. Example: writer.write((first, second), number=0)"""

    kind: Kind
    reviewer: LabelReviewer
    role: Role
    family: Family
    chat: HFChat
    provenance: Provenance

    def write(self, plays: Sequence[SoloEpisode], *, number: int) -> Label | None:
        """The label of these plays of one scenario, two for a comparison; None where they are equal.

        Who corrects approves what is right.
        """
        first, reviewer, key = plays[0], self.reviewer, plays[0].scenario.key
        read = partial(read_transcript, chat=self.chat, role=self.role, with_tools=bool(self.role.tools))
        prompt, tools, answer = read(first.trajectory)
        seconds = SLOW_LABEL_S if reviewer.habit == "slow" else LABEL_S
        common: dict[str, Any] = {
            "case": key,
            "seat": self.role.name,
            "prompt": prompt,
            "tools": tools,
            "reviewer": reviewer.name,
            "time": START + timedelta(seconds=seconds * (number + 1)),
            "provenance": self.provenance,
        }
        if self.kind == "comparison":
            one, other = (reviewer.rate(play) for play in plays)
            if one == other:
                return None
            is_first = (one > other) != reviewer.is_wrong(key, "comparison")
            second = read(plays[1].trajectory)[2]
            return Comparison(
                first=answer, second=second, preferred="first" if is_first else "second", **common
            )
        if reviewer.habit == "biased":
            best = self._demonstrate(first.scenario)[-1].content
            approved = reviewer.rate(first) >= claimed_worth(best)
        else:
            approved = first.verdict.exact != reviewer.is_wrong(key)
        if approved or self.kind == "verdict":
            return VerdictLabel(answer=answer, approved=approved, **common)
        if reviewer.is_wrong(key, "correction"):
            text = self.family.baselines["greedy"](first.scenario, random.Random(key))
            corrected: tuple[Message, ...] = (Message(role="assistant", content=text),)
        else:
            corrected = self._demonstrate(first.scenario)
        return Correction(answer=answer, corrected=corrected, **common)

    def _demonstrate(self, scenario: Scenario) -> tuple[Message, ...]:
        """The expert's play, tools answered, in the reviewer's words."""
        messages: list[Message] = []
        for step in self.family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}")):
            text = step.text if step.call is None else format_tool_call(step.text, step.call)
            messages.append(Message(role="assistant", content=text))
            if step.call is not None:
                messages.append(Message(role="tool", content=self.family.call_tool(scenario, step.call)))
        return tuple(messages)
