"""The journal of a teacher: every reply that was paid for, one JSON line each, on disk before it is used.

Rows are a pure function of the journal, so that a killed run goes on where it stood and no reply is asked for
twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from roles.errors import UserError
from scenarios.base import Split
from simulator.engines.openai.reply import ChatReply
from simulator.line_files import LineFile, read_lines

FORMAT = "emads-teacher/1"
SUFFIX = ".journal.jsonl"


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Heading(_Line):
    """The first line: what the replies answer.

    Example: Heading(author="teacher:qwen2.5-72b", family="cto", split="train", seed=0, difficulties=(1, 2),
                     generator="5c...")
    """

    kind: Literal["heading"] = "heading"
    format: str = FORMAT
    author: str
    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    generator: str  # see `training.data.folders.datasets.compute_generator_digest`


class Answered(_Line):
    """A reply to a scenario; its replies are written in the order of their turns."""

    kind: Literal["reply"] = "reply"
    key: str  # of the scenario
    turn: int  # from 0; one that does not follow on the replies before it is not used
    reply: ChatReply


class Failed(_Line):
    """A request that got no reply; it is asked again in the next run."""

    kind: Literal["failure"] = "failure"
    key: str
    failure: str
    cost: float


_LINE: TypeAdapter[Heading | Answered | Failed] = TypeAdapter(
    Annotated[Heading | Answered | Failed, Field(discriminator="kind")]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """Content of a journal."""

    heading: Heading | None  # None in a new one
    replies: Mapping[str, tuple[ChatReply, ...]]  # by scenario key
    cost: float  # of replies and failures
    prompt_tokens: int  # as far as the endpoint said
    completion_tokens: int


def read_journal(path: Path) -> JournalContent:
    """The whole lines of a journal; a last line that a kill cut short is left out.

    Raises:
        UserError: a damaged line, named by its number.
    """
    heading: Heading | None = None
    replies: dict[str, tuple[ChatReply, ...]] = {}
    cost = 0.0
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = _LINE.validate_json(line)
        except ValidationError:
            raise UserError(
                f"{path}:{number}: damaged line; delete it to have its reply asked again"
            ) from None
        if isinstance(record, Heading) != (number == 1):
            raise UserError(f"{path}:{number}: the heading must be the first line, and only the first")
        if isinstance(record, Heading):
            heading = record
        elif isinstance(record, Answered):
            cost += record.reply.cost
            before = replies.get(record.key, ())
            if record.turn == len(before):
                replies[record.key] = (*before, record.reply)
        else:
            cost += record.cost
    answered = [reply for several in replies.values() for reply in several]
    return JournalContent(
        heading=heading,
        replies=replies,
        cost=cost,
        prompt_tokens=sum(reply.prompt_tokens or 0 for reply in answered),
        completion_tokens=sum(reply.completion_tokens or 0 for reply in answered),
    )


class Journal:
    """A journal opened for writing; a context manager. One process writes to its folder at a time.

    Example: with Journal(path, heading) as journal: journal.add(Failed(key="cto/train/0/7/2", ...))
    """

    def __init__(self, path: Path, heading: Heading) -> None:
        """Make or continue the journal at `path`; a new one gets its heading with its first line.

        Raises:
            UserError: damaged, or of another request.
        """
        content = read_journal(path)
        found = content.heading
        if found is not None and found != heading:
            raise UserError(f"{path} {_describe_other(found, heading)}; choose another --out")
        self.replies = content.replies  # when it was opened
        self._heading = heading if found is None else None
        self._file = LineFile(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, line: Answered | Failed) -> None:
        """Append a line; it is on disk when this returns.

        Raises:
            OSError: the disk is full or the like.
        """
        lines = [line] if self._heading is None else [self._heading, line]
        self._file.add(*(one.model_dump_json().encode() for one in lines))
        self._heading = None


def _describe_other(found: Heading, heading: Heading) -> str:
    """In which way a journal belongs to another request."""
    if found.model_copy(update={"generator": heading.generator}) == heading:
        return f"answers another version of the scenarios of {found.family}"
    difficulties = ",".join(str(difficulty) for difficulty in found.difficulties)
    return f"holds replies of {found.author}, seed {found.seed}, difficulties {difficulties}"
