"""Hidden profiles from a file in HiddenBench's layout (arXiv:2505.11556): shared facts and facts of one seat.

The file is the user's own; none comes with the package. Unlike there, ReconcileGPT drafts an answer between
the statements and the votes, and a task has at most as many members as the team has specialists.
"""

import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from roles.base import Answer
from roles.errors import UserError
from roles.limits import ANSWER_RULES
from roles.team import RECONCILER, SPECIALISTS, Vote
from scenarios.suites.table_talk import MAX_WORDS, Parsed, Reports, TalkCase, TalkGame, Words
from scenarios.tasks.question_files import iterate_rows
from scenarios.team.playable import Seat

NAME = "hidden-profile"
Text = Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S")]


class HiddenProfileTask(BaseModel):
    """One task as HiddenBench's file `benchmark.json` has it; other keys are not read.

    Example: HiddenProfileTask(id=1, name="hall", description="Choose a hall.", shared_information=["..."],
                               hidden_information=["...", "..."], possible_answers=["North", "Pier"],
                               correct_answer="Pier")
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    id: int | str
    name: str
    description: Text
    shared_information: list[Text]
    hidden_information: Annotated[list[Text], Field(min_length=2)]  # one fact of each member
    possible_answers: Annotated[list[Text], Field(min_length=2)]
    correct_answer: str

    @model_validator(mode="after")
    def _check_answers(self) -> Self:
        plain = [normalise(one) for one in self.possible_answers]
        if len(set(plain)) != len(plain):
            raise ValueError("possible_answers names an answer twice")
        if normalise(self.correct_answer) not in plain:
            raise ValueError("correct_answer is none of possible_answers")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenProfileCase(TalkCase):
    """A task dealt to seats; `right` is never shown to a player.

    Example: read_hidden_profiles(Path("benchmark.json"))[0].right == "Pier"
    """

    answers: tuple[str, ...]
    right: str
    shared: tuple[str, ...]  # facts that everybody knows, ReconcileGPT included
    all_facts: tuple[str, ...]  # of the single agent, in the order in which it reads them


class Preference(Answer):
    """A member's statement. Example: Preference(answer="Pier", say="The roof of North leaks.")"""

    answer: str
    say: Words = ""


class Choice(Answer):
    """ReconcileGPT's draft, and the single agent's answer. Example: Choice(answer="Pier", reason="Dry.")"""

    answer: str
    reason: Words = ""


class MemberVote(Vote):
    """A vote with the member's own final answer. Example: MemberVote(vote="object", answer="Pier")"""

    answer: str


_EXAMPLES = (
    '{"answer": "Pier Hall", "say": "The roof of North Hall leaks."}',
    '{"vote": "object", "answer": "Pier Hall", "reason": "North Hall is wet."}',
    '{"answer": "Pier Hall", "reason": "The only dry hall for 200 guests."}',
)
_RULE = (
    "Write one JSON object and nothing after it; an answer is one of the possible answers, word for word. Of"
    f" what you say, and of a reason, the others read {MAX_WORDS} words. {ANSWER_RULES}"
)


class HiddenProfileGame(TalkGame):
    """The group's talk about one task.

    Example: HiddenProfileGame(case).read_decision({}, '{"answer": "Pier"}')
    """

    name = NAME
    report, decision, vote = Preference, Choice, MemberVote
    mandates = MappingProxyType(
        {
            False: "You are a member of a group that must choose one answer together. First write the answer"
            " that you prefer now, and what the group should hear (at most 150 words). Then you read what the"
            " others said and the answer that ReconcileGPT drafted, and vote: accept or object, your own"
            f" final answer, and a reason. {_RULE} Examples of another question, statement and vote:"
            f" {_EXAMPLES[0]} {_EXAMPLES[1]}",
            True: "You lead a group that must choose one answer together. From what all know and what the"
            " members say, draft the answer that is right. If members object you draft again."
            f" {_RULE} Example of another question: {_EXAMPLES[2]}",
        }
    )

    def __init__(self, case: HiddenProfileCase) -> None:
        self._case = case

    def settle(self, parsed: Parsed) -> Parsed | None:
        """Return the answer as the task spells it; None for one that it does not offer."""
        for answer in self._case.answers:
            if normalise(answer) == normalise(parsed["answer"]):
                return {**parsed, "answer": answer}
        return None

    def describe(self, parsed: Parsed) -> str:
        """Return the answer in quotes."""
        return json.dumps(parsed["answer"], ensure_ascii=False)

    def write_report_brief(self, seat: str, *, with_tools: bool = True) -> str:
        """Write the question with what the member knows."""
        return self._write(self._case.seats[seat].facts["facts"], "Write your first statement.")

    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write the question, the shared facts and the statements."""
        said = self.write_statements(reports)
        return self._write(self._case.shared, f"The members say:\n{said}\nDraft the answer.")

    def write_single_brief(self) -> str:
        """Write the question with all facts, for one agent that decides alone."""
        return self._write(self._case.all_facts, "Nobody else is asked. Write the answer.")

    def _write(self, facts: Collection[str], end: str) -> str:
        known = "".join(f"\n- {fact}" for fact in facts)
        listed = json.dumps(list(self._case.answers), ensure_ascii=False)
        situation = self._case.situation
        return f"{situation}\n\nWhat you know, in no order:{known}\n\nPossible answers: {listed}\n\n{end}"


def read_hidden_profiles(path: Path) -> list[HiddenProfileCase]:
    """Return the tasks of a JSON list, or of JSON Lines, in the file's order.

    A task with h hidden facts seats min(h, 4) specialists, who get them in turn.

    Raises:
        UserError: no such file, or the first damaged task by file and number.
    """
    cases: dict[str, HiddenProfileCase] = {}
    for number, value in iterate_rows(path):
        try:
            task = HiddenProfileTask.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "task"
            reason = getattr(value, "reason", f"{where}: {first['msg']}")
            raise UserError(f"{path} row {number}: {reason}; --tasks takes HiddenBench's layout") from None
        case = deal(task)
        if case.key in cases:
            raise UserError(f"{path} row {number}: the id {task.id!r} again; give every task its own")
        cases[case.key] = case
    if not cases:
        raise UserError(f"{path} holds no task; --tasks takes HiddenBench's layout")
    return list(cases.values())


def deal(task: HiddenProfileTask) -> HiddenProfileCase:
    """Deal a task's hidden facts to seats; each reads its facts in an order of its own."""
    key = f"{NAME}/{task.id}"
    members = SPECIALISTS[: len(task.hidden_information)]

    def shuffle(seat: str, own: list[str]) -> list[str]:
        facts = [*task.shared_information, *own]
        random.Random(f"{key}/{seat}").shuffle(facts)
        return facts

    own = {seat: task.hidden_information[place :: len(members)] for place, seat in enumerate(members)}
    return HiddenProfileCase(
        key=key,
        situation=task.description,
        options=tuple(str(number) for number in range(1, len(task.possible_answers) + 1)),
        seats={seat: Seat(role=seat, facts={"facts": shuffle(seat, facts)}) for seat, facts in own.items()},
        answers=tuple(task.possible_answers),
        right=next(one for one in task.possible_answers if normalise(one) == normalise(task.correct_answer)),
        shared=tuple(shuffle(NAME, [])),
        all_facts=tuple(shuffle(RECONCILER, task.hidden_information)),
    )


def normalise(text: str) -> str:
    """Return the text without differences of case and white space."""
    return " ".join(text.casefold().split())
