"""The review queue: answers of the team that people should judge, and why these.

An item holds everything that a label of it needs, and no truth. `queue.jsonl` has one item per line.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors, write_atomic
from simulator.governance.seals import digest_json
from training.feedback.labels import (
    Comparison,
    Conversation,
    Correction,
    Name,
    Provenance,
    Text,
    VerdictLabel,
    parse_lines,
    replace_last,
    time_now,
)

QUEUE_FILE = Path("review/queue.jsonl")  # in a run's folder
Reason = Literal["escalated", "no valid decision", "low margin", "objection", "asked for"]


class QueuedItem(BaseModel):
    """One answer to judge, or two to compare.

    Example: one with two answers can be compared as well as corrected and approved.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    case: Name  # key of the scenario
    seat: Name  # who answered
    prompt: Conversation
    tools: tuple[dict[str, Any], ...] = ()
    answers: Annotated[tuple[Conversation, ...], Field(min_length=1, max_length=2)]  # its own, another of its
    reasons: tuple[Reason, ...]
    margin: float  # share of the most frequent decision minus that of the next, 0 to 1
    decisions: dict[str, int]  # decisions that were made on the same reports, and how often
    title: Text
    table: Text  # the prompt in full words, for people
    briefs: dict[str, Text]  # seat -> what it was told
    reports: dict[str, Text]
    votes: dict[str, Text]
    options: dict[str, list[str]]  # option -> labels of the offers on it that may be funded
    provenance: Provenance

    @cached_property
    def id(self) -> str:
        """Name of the item in addresses: 16 hexadecimal digits."""
        prompt = [[message.role, message.content] for message in self.prompt]
        return digest_json([self.case, self.seat, prompt])[:16]

    def correct(self, text: str, reviewer: str, **more: Any) -> Correction:
        """Return the label that the first answer should have ended in these words."""
        answer = self.answers[0]
        return Correction(answer=answer, corrected=replace_last(answer, text), **self._fill(reviewer, more))

    def judge(self, approved: bool, reviewer: str, **more: Any) -> VerdictLabel:
        """Return the label that the first answer is good enough, or is not."""
        return VerdictLabel(answer=self.answers[0], approved=approved, **self._fill(reviewer, more))

    def compare(
        self, preferred: Literal["first", "second", "neither"], reviewer: str, **more: Any
    ) -> Comparison:
        """Return the label that one of the two answers is better.

        Raises:
            ValueError: there is only one.
        """
        if len(self.answers) < 2:
            raise ValueError("an item with one answer cannot be compared")
        first, second = self.answers
        return Comparison(first=first, second=second, preferred=preferred, **self._fill(reviewer, more))

    def _fill(self, reviewer: str, more: dict[str, Any]) -> dict[str, Any]:
        same = {"case": self.case, "seat": self.seat, "prompt": self.prompt, "tools": self.tools}
        return {**same, "provenance": self.provenance, "reviewer": reviewer, "time": time_now(), **more}

    @cached_property
    def label_names(self) -> frozenset[str]:
        """Names under which labels of any kind are about this item; see `Label.item`."""
        names = {self.judge(True, "-").item, self.correct("-", "-").item}
        if len(self.answers) == 2:
            names.add(self.compare("neither", "-").item)
        return frozenset(names)


def write_queue(path: Path, items: Sequence[QueuedItem]) -> None:
    """Write the queue in place of the one before; labels are kept elsewhere and stay."""
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(item.model_dump_json() + "\n" for item in items).encode())


def read_queue(path: Path) -> list[QueuedItem]:
    """All items of a queue, in order.

    Raises:
        UserError: missing, or a line that is no item; names file, line and field.
    """
    if not path.is_file():
        raise UserError(f"no review queue {path}: make one with `emads run` or `emads review`")
    return parse_lines(TypeAdapter(QueuedItem), path, "item of a review queue")
