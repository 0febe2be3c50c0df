"""Lessons that a teacher plays: a role's own scenario, a seat's part in a meeting of experts, a new brief.

At the table the other seats are experts, so that everything a seat reads follows from the case and from what
it said itself: its report is followed by the vote, a question of ReconcileGPT by the table with the reply.
A paraphrase is kept only if the audit's reader (`evaluation.audit.text_solvers`) finds the same facts in it.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from evaluation.audit.text_solvers import RULES, UnreadableBriefError, read_facts
from roles.base import Role, parse_answer
from roles.errors import UserError
from roles.team import RECONCILER, Ask, Decision, Report
from scenarios.base import Family, Scenario, Split, ToolCall, Verdict, rejected
from scenarios.team import PlanGame, TeamScenario, load_table
from scenarios.team.demonstrations import Meeting, hold_meeting, show_reply
from scenarios.team.value import funded_plan
from scenarios.team.verdicts import verify_decision, verify_report, verify_vote
from training.data.folders.rows import (
    SOLO_FAMILIES,
    SOLO_ROLES,
    Case,
    Message,
    Row,
    describe_case,
    generate_case,
    list_tools,
    load_messages,
    make_row,
    store_messages,
    write_opening,
)

HOW_TO_WORK = (
    "Call one tool at a time and wait for its result. State a number only when the brief or a tool gave it, "
    "or work it out in an equation first. "
    "Keep your words short. When you know the answer, write it as one JSON object, with no other curly "
    "braces in that turn."
)
Answers = Sequence[str]  # what the teacher has answered so far, in order
Table = dict[str, dict[str, Any] | None]  # seat -> its report


class Lesson(ABC):
    """One play that is asked of a teacher.

    Example: list_lessons(generate("train", seed=0, index=7, difficulty=2))[0].brief
    """

    instructions: str = HOW_TO_WORK  # that follow on the mandate and are no part of a row

    def __init__(self, case: Case, name: str, role: Role, brief: str) -> None:
        """`name`: of the role in the case; `role`: as its prompt introduces it."""
        self.case, self.name, self.role, self.brief = case, name, role, brief

    @property
    def key(self) -> str:
        """Key of the play."""
        return self.case.key if isinstance(self.case, Scenario) else f"{self.case.key}/{self.name}"

    def follow_up(self, answers: Answers) -> str | None:
        """The message after an answer; None after the last answer."""
        return None

    @abstractmethod
    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        """Result of a tool after these answers; raises ToolError."""

    @abstractmethod
    def verify(self, answers: Answers) -> Verdict:
        """The verifier's word on the whole play."""

    @abstractmethod
    def read_answer(self, answers: Answers) -> Any:
        """The final answer as the row holds it; raises AnswerError."""

    @cached_property
    @abstractmethod
    def observations(self) -> list[str]:
        """What tools say in the expert's own play."""

    def build_row(self, turns: Sequence[Message], answers: Answers, author: str) -> Row:
        """The row of a play; raises AnswerError where the last turn is no answer."""
        messages = [*write_opening(self.role, self.brief), *turns]
        tools, answer = list_tools(self.role), self.read_answer(answers)
        return make_row(self.case, self.name, self.brief, messages, tools, answer, author)

    def remake(self) -> "Lesson":
        """The same play on the case generated anew."""
        case = self.case
        return open_lesson(case.family, case.split, case.seed, case.index, case.difficulty, self.name)


def list_lessons(case: Case, families: Mapping[str, Family] = SOLO_FAMILIES) -> list[Lesson]:
    """The plays on one case: one of a role family, one per seat and ReconcileGPT of the team."""
    if isinstance(case, Scenario):
        return [RoleLesson(case, families[case.family])]
    game = PlanGame(case)
    meeting = hold_meeting(game)
    return [*(_SpecialistLesson(game, meeting, seat) for seat in case.seats), _ChairLesson(game, meeting)]


def open_lesson(family: str, split: Split, seed: int, index: int, difficulty: int, name: str) -> Lesson:
    """The lesson of a row of these coordinates and this role; KeyError: the case has no such role."""
    lessons = list_lessons(generate_case(family, split, seed, index, difficulty))
    return {lesson.name: lesson for lesson in lessons}[name]


class RoleLesson(Lesson):
    """A role's own scenario."""

    case: Scenario

    def __init__(self, scenario: Scenario, family: Family) -> None:
        role = SOLO_ROLES[family.role]
        super().__init__(scenario, role.name, role, scenario.brief)
        self.family = family
        schema = role.answer.model_json_schema()
        shown = {key: value for key, value in schema.items() if key not in ("description", "title")}
        self.instructions = f"{HOW_TO_WORK} It matches this JSON schema: {json.dumps(shown)}"

    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        return self.family.call_tool(self.case, call)

    def verify(self, answers: Answers) -> Verdict:
        return self.family.verify(self.case, answers[-1])

    def read_answer(self, answers: Answers) -> Any:
        return parse_answer(answers[-1], self.role.answer).model_dump(exclude_unset=True)

    @cached_property
    def observations(self) -> list[str]:
        steps = self.family.demonstrate(self.case, random.Random(f"demonstration/{self.case.key}"))
        return [self.family.call_tool(self.case, step.call) for step in steps if step.call is not None]

    def remake(self) -> Lesson:
        case = self.case
        again = self.family.generate(case.split, case.seed, case.index, case.difficulty)
        return type(self)(again, self.family)


class _SeatLesson(Lesson):
    """A seat's part in a meeting of experts."""

    case: TeamScenario

    def __init__(self, game: PlanGame, meeting: Meeting, name: str) -> None:
        assert isinstance(game.case, TeamScenario)
        super().__init__(game.case, name, game.prompt_role(name), meeting.messages[name][0].brief)
        self._game, self._meeting = game, meeting

    @cached_property
    def observations(self) -> list[str]:
        calls = [(one, step.call) for one in self._meeting.messages[self.name] for step in one.steps]
        return [self._game.call_tool(self.name, call, one.reports) for one, call in calls if call is not None]


class _SpecialistLesson(_SeatLesson):
    """A specialist's part: its report, then its vote on a draft in which its own offers stand."""

    def _read_table(self, report: str) -> Table:
        return {**self._meeting.reports, self.name: self._game.read_report(self.name, report)}

    def follow_up(self, answers: Answers) -> str | None:
        reports = self._read_table(answers[0])
        if len(answers) > 1 or reports[self.name] is None:
            return None
        return self._game.write_vote_brief(self._meeting.drafts[self.name], self.name, reports)

    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        return self._game.call_tool(self.name, call, self._meeting.reports)

    def verify(self, answers: Answers) -> Verdict:
        """The lesser of the verdicts on report and vote."""
        report = verify_report(self.case, self.name, answers[0])
        if len(answers) < 2:
            return report if report.reward == 0 else rejected("not_json", "no vote")
        draft = self._meeting.drafts[self.name]
        decision = None if draft is None else Decision.model_validate(draft)
        escalated = decision is not None and decision.escalate
        plan = None
        if decision is not None and not escalated:
            plan = funded_plan(load_table(self._read_table(answers[0])), decision)
        vote = verify_vote(self.case, self.name, plan, escalated, answers[1])
        return min(report, vote, key=lambda verdict: verdict.reward)

    def read_answer(self, answers: Answers) -> Any:
        return parse_answer(answers[0], Report).model_dump()


class _ChairLesson(_SeatLesson):
    """ReconcileGPT's part: questions, each answered by the expert of the seat, then the decision."""

    def __init__(self, game: PlanGame, meeting: Meeting) -> None:
        super().__init__(game, meeting, RECONCILER)

    def _hear(self, answers: Answers) -> tuple[Table, int]:
        """The reports with what replies added, and the number of questions."""
        game, num_asked = self._game, 0
        reports: Table = dict(self._meeting.messages[RECONCILER][0].reports)
        for text in answers:
            asked = game.read_ask(text) if num_asked < game.most_questions else None
            if asked is None:
                break
            num_asked += 1
            seat = asked["seat"]
            reply = show_reply(game, Ask.model_validate(asked), (), with_tools=False)[-1].text
            reports[seat] = game.add_offer(reports[seat], game.read_reply(seat, asked, reports[seat], reply))
        return reports, num_asked

    def follow_up(self, answers: Answers) -> str | None:
        reports, num_asked = self._hear(answers)
        return self._game.write_decision_brief(reports) if num_asked == len(answers) else None

    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        return self._game.call_tool(RECONCILER, call, self._hear(answers)[0])

    def verify(self, answers: Answers) -> Verdict:
        return verify_decision(self.case.public, load_table(self._hear(answers)[0]), answers[-1])

    def read_answer(self, answers: Answers) -> Any:
        return self._game.read_decision(self._hear(answers)[0], answers[-1])


AUTHOR_PREFIX = "paraphrase:"
MOST_TIMES_AS_LONG = 3
MANDATE = (
    "You rewrite a brief in other words, in another order if you like, as a colleague would put it. Keep "
    "every fact: each figure in digits with its unit, each name of an option or upgrade letter by letter, "
    "the cost right after the name that it belongs to, each limit with its direction (at least, at most), "
    "and the question. One sentence states one kind of figure. Add no figure and no advice. Answer with the "
    "brief alone."
)


def check_can_paraphrase(families: Sequence[str]) -> None:
    """Refuse, with a UserError, families whose briefs nothing reads back."""
    for family in families:
        if family not in RULES:
            raise UserError(
                f"family {family!r}: its brief cannot be paraphrased; name some of {', '.join(RULES)} by "
                "--family"
            )


class ParaphraseLesson(RoleLesson):
    """The play in which a teacher rewrites the brief of a role's scenario; its row is else the oracle's."""

    def __init__(self, scenario: Scenario, family: Family) -> None:
        super().__init__(scenario, family)
        answer, self.instructions = self.role.answer, ""
        self.role = Role(name="paraphrase", title="Editor", mandate=MANDATE, answer=answer, tools=())

    def verify(self, answers: Sequence[str]) -> Verdict:
        return compare_briefs(self.case, answers[-1])

    @cached_property
    def observations(self) -> list[str]:
        return []

    def build_row(self, turns: Sequence[Any], answers: Sequence[str], author: str) -> Row:
        (expected,) = describe_case(self.case)
        return with_brief(expected, answers[-1].strip()) | {"author": author}


def with_brief(row: Row, brief: str) -> Row:
    """The row with another brief as its user message."""
    system, user, *others = load_messages(row["messages"])
    return row | {"brief": brief, "messages": store_messages([system, {**user, "content": brief}, *others])}


def compare_briefs(scenario: Scenario, text: str) -> Verdict:
    """1 where the text states just the facts of the scenario's brief, else 0 with the reason."""
    names = list(scenario.facts["structure"]["upgrades"])
    if len(text) > MOST_TIMES_AS_LONG * len(scenario.brief):
        return rejected("schema", f"more than {MOST_TIMES_AS_LONG} times as long as the brief")
    if scenario.facts["name"].lower() not in text.lower():
        return rejected("wrong_figures", f"the option's name is missing: {scenario.facts['name']}")
    try:
        found = read_facts(scenario.role, text, names)
    except UnreadableBriefError as error:
        return rejected("wrong_figures", str(error))
    if found != read_facts(scenario.role, scenario.brief, names):
        return rejected("wrong_figures", "the facts are not those of the brief")
    return Verdict(reward=1.0, parts={}, exact=True, feasible=True, explanation="the same facts")


def find_paraphrase_fault(row: Row, expected: Row, scenario: Scenario) -> str | None:
    """Fault of a row whose brief a teacher rewrote; None if there is none. `expected` is the oracle's."""
    verdict = compare_briefs(scenario, row["brief"])
    if not verdict.exact:
        return f"brief: {verdict.explanation}"
    same = with_brief(expected, row["brief"])["messages"]
    return None if row["messages"] == same else "messages are not the oracle's after the brief"
