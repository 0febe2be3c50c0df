"""Labels of answers, with everything that it takes to train on them, and the queue of answers to review.

A label is a correction (what should have been said), a comparison of two answers to one prompt, or a verdict
(approved or not). Answers are conversations as in the chat format, and what a policy sampled keeps its token
ids, so that training never reads them from text again. The queue holds answers of the team that people should
judge, and the reasons: an item has everything that a label of it needs, and no truth.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, Field, TypeAdapter, ValidationError

from roles.errors import UserError
from scenarios.base import Style
from simulator.export.atomic_files import explain_os_errors, write_atomic
from simulator.governance.seals import digest_json
from simulator.line_files import LineFile, read_lines
from training.config.section import StrictRecord

MAX_NAME = 200
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Text = Annotated[str, Field(max_length=200_000)]
Item = TypeVar("Item")


class Message(StrictRecord):
    """One message of a conversation.

    Example: Message(role="assistant", content="accept", token_ids=(41, 3))
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Text
    token_ids: tuple[int, ...] | None = None  # as sampled, end-of-turn included; None: nobody sampled it


Conversation = Annotated[tuple[Message, ...], Field(min_length=1, max_length=200)]


def _check_prompt(prompt: Conversation) -> Conversation:
    if [message.role for message in prompt[:2]] != ["system", "user"]:
        raise ValueError("must begin with a system and a user message")
    if prompt[-1].role not in ("user", "tool"):
        raise ValueError("must end with a user or tool message")
    return prompt


def _check_answer(answer: Conversation) -> Conversation:
    if answer[0].role != "assistant" or answer[-1].role != "assistant":
        raise ValueError("must begin and end with an assistant message")
    if any(message.role not in ("assistant", "tool") for message in answer):
        raise ValueError("may hold assistant and tool messages alone")
    return answer


def _check_written(answer: Conversation) -> Conversation:
    if _check_answer(answer)[-1].token_ids is not None:
        raise ValueError("must end with words of the reviewer, which have no token_ids")
    return answer


JudgedAnswer = Annotated[Conversation, AfterValidator(_check_answer)]


class Provenance(StrictRecord):
    """Origin of the answers.

    Example: Provenance(run="demo", weights="grpo", style="short")
    """

    run: Name  # name of the run whose policies answered
    weights: Name  # version of these policies: a stage such as "grpo", or "none" where no policy answered
    style: Style  # of the prompts
    source: Literal["web", "gate", "simulated", "import"] = "web"  # where the label was made


class _Label(StrictRecord, ABC):
    """Fields of labels of every kind."""

    case: Name  # key of the scenario
    seat: Name  # who answered: "cto"
    prompt: Annotated[Conversation, AfterValidator(_check_prompt)]  # everything before the answer
    tools: tuple[dict[str, Any], ...] = ()  # that the prompt names, as chat templates take them
    reviewer: Name
    time: AwareDatetime
    reason: Text = ""
    adjudicates: bool = False  # decides where reviewers disagree
    provenance: Provenance

    @property
    def item(self) -> str:
        """Name of what was judged: equal for all reviewers, whichever way round they saw it."""
        answers = sorted(_digest_answer(answer) for answer in self.judged)
        prompt = [[message.role, message.content] for message in self.prompt]
        return _digest([self.case, self.seat, prompt, answers, type(self).__name__])

    @property
    def judged(self) -> tuple[Conversation, ...]:
        """The answers that the reviewer was shown: one, or two to compare."""
        shown = (getattr(self, name, None) for name in ("answer", "first", "second"))
        return tuple(answer for answer in shown if answer is not None)

    @property
    @abstractmethod
    def ruling(self) -> str:
        """The reviewer's ruling, as a value that can be compared between labels of one item."""


class Correction(_Label):
    """The answer that a seat should have given."""

    kind: Literal["correction"] = "correction"
    answer: JudgedAnswer  # what was said
    corrected: Annotated[Conversation, AfterValidator(_check_written)]
    # what should have been; messages with token ids are kept from the answer

    @property
    def ruling(self) -> str:
        return _digest_answer(self.corrected)


class Comparison(_Label):
    """Preference between two answers to one prompt."""

    kind: Literal["comparison"] = "comparison"
    first: JudgedAnswer
    second: JudgedAnswer
    preferred: Literal["first", "second", "neither"]

    @property
    def ruling(self) -> str:
        if self.preferred == "neither":
            return "neither"
        return _digest_answer(self.first if self.preferred == "first" else self.second)


class VerdictLabel(_Label):
    """Whether an answer is good enough."""

    kind: Literal["verdict"] = "verdict"
    answer: JudgedAnswer
    approved: bool

    @property
    def ruling(self) -> str:
        return "approved" if self.approved else "rejected"


Label = Correction | Comparison | VerdictLabel
LABEL: TypeAdapter[Label] = TypeAdapter(Annotated[Label, Field(discriminator="kind")])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest_answer(answer: Sequence[Message]) -> str:
    return _digest([[message.role, message.content] for message in answer])


def replace_last(answer: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The answer with other last words, which a reviewer wrote."""
    return (*answer[:-1], Message(role="assistant", content=text))


def time_now() -> datetime:
    """The time of a label that is made now."""
    return datetime.now(UTC)


def labels_beside(store: Path) -> Path:
    """The file that labels of a review are added to, beside the gate's store."""
    return store.with_name(f"{store.name}.labels.jsonl")


def add_label(path: Path, *labels: Label) -> None:
    """Append labels to a JSONL file; they are on disk when this returns, whoever else adds at the time.

    Raises:
        OSError: the disk is full or the like; none of them counts.
    """
    with LineFile(path) as file:
        file.add(*(label.model_dump_json().encode() for label in labels))


def read_labels(path: Path) -> list[Label]:
    """All labels of a file, oldest first; a last line that a kill cut short is left out.

    Raises:
        UserError: missing, or a line that is no label; names file, line and field.
    """
    if not path.is_file():
        raise UserError(f"no label file {path}: make one with `emads review` or `emads labels simulate`")
    return parse_lines(LABEL, path, "label")


def parse_lines(kind: TypeAdapter[Item], path: Path, what: str) -> list[Item]:
    """The whole lines of a file, each a value of this kind.

    Raises:
        UserError: a line that is none; names file, line and field.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            found.append(kind.validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            message = first["msg"].removeprefix("Value error, ")
            raise UserError(f"{path}:{number} is no {what} ({where}: {message}); mend the line") from None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLabels:
    """One label per item that reviewers agree on.

    Example: ResolvedLabels(labels=(label,), num_replaced=0, disputed=(), agreement=None)
    """

    labels: tuple[Label, ...]  # one per settled item, in the order in which the items were first judged
    num_replaced: int  # labels that the same reviewer replaced by a later one
    disputed: tuple[str, ...]  # items without a majority and without an adjudicator's label
    agreement: float | None  # share of pairs of reviewers of one item who say the same; None: no such pair


def latest_by_reviewer(labels: Iterable[Label]) -> Mapping[str, Sequence[Label]]:
    """Item -> the latest label of every reviewer; later ones stand later in `labels`."""
    items: dict[str, dict[str, Label]] = {}
    for label in labels:
        items.setdefault(label.item, {})[label.reviewer] = label
    return {item: list(of_item.values()) for item, of_item in items.items()}


def resolve_labels(labels: Sequence[Label]) -> ResolvedLabels:
    """One ruling per item: an adjudicator's, else that of more than half of its reviewers.

    A reviewer's later label on an item replaces the earlier one. Items that stay open are left out.
    """
    items = latest_by_reviewer(labels)
    settled: list[Label] = []
    disputed = []
    num_pairs = num_same = 0
    for item, of_item in items.items():
        pairs = list(combinations([label.ruling for label in of_item], 2))
        num_pairs += len(pairs)
        num_same += sum(one == other for one, other in pairs)
        found = _settle(of_item)
        if found is None:
            disputed.append(item)
        else:
            settled.append(found)
    return ResolvedLabels(
        labels=tuple(settled),
        num_replaced=len(labels) - sum(len(of_item) for of_item in items.values()),
        disputed=tuple(disputed),
        agreement=num_same / num_pairs if num_pairs else None,
    )


def _settle(labels: Sequence[Label]) -> Label | None:
    adjudicated = [label for label in labels if label.adjudicates]
    if adjudicated:
        return max(adjudicated, key=lambda label: label.time)
    ruling, count = Counter(label.ruling for label in labels).most_common(1)[0]
    if 2 * count <= len(labels):
        return None
    return next(label for label in labels if label.ruling == ruling)


QUEUE_FILE = Path("review/queue.jsonl")  # in a run's folder
Reason = Literal["escalated", "no valid decision", "low margin", "objection", "asked for"]


class QueuedItem(StrictRecord):
    """One answer to judge, or two to compare.

    Example: one with two answers can be compared as well as corrected and approved.
    """

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
        write_atomic(path, "".join(item.model_dump_json() + "\n" for item in items).encode())


def read_queue(path: Path) -> list[QueuedItem]:
    """All items of a queue, in order.

    Raises:
        UserError: missing, or a line that is no item; names file, line and field.
    """
    if not path.is_file():
        raise UserError(f"no review queue {path}: make one with `emads run` or `emads review`")
    return parse_lines(TypeAdapter(QueuedItem), path, "item of a review queue")
