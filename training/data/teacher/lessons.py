"""Lessons that a teacher plays: a role's own scenario, or a seat's part in a meeting of experts.

At the table the other seats are experts, so that everything a seat reads follows from the case and from what
it said itself: its report is followed by the vote, a question of ReconcileGPT by the table with the reply.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roles.base import Role, parse_answer
from roles.team import RECONCILER, Ask, Decision, Report
from scenarios.base import Family, Scenario, Split, Step, ToolCall, Verdict, rejected
from scenarios.team import PlanGame, TeamScenario, load_table
from scenarios.team.demonstrations import Meeting, hold_meeting, show_reply
from scenarios.team.demonstrations import Message as Heard
from scenarios.team.value import funded_plan
from scenarios.team.verdicts import verify_decision, verify_report, verify_vote
from training.data.folders.rows import (
    SOLO_FAMILIES,
    SOLO_ROLES,
    TEAM,
    Case,
    Message,
    Row,
    generate_case,
    list_tools,
    make_row,
    write_opening,
)

HOW_TO_WORK = (
    "Call one tool at a time and wait for its result. State a number only when the brief or a tool gave it, "
    "or work it out in an equation first. "
    "Keep your words short. When you know the answer, write it as one JSON object, with no other curly "
    "braces in that turn."
)
Answers = Sequence[str]  # what the teacher has answered so far, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One play that is asked of a teacher.

    Example: list_lessons(generate("train", seed=0, index=7, difficulty=2))[0].brief
    """

    key: str  # of the play
    case: Case
    name: str  # of the role
    role: Role  # as its prompt introduces it
    instructions: str  # that follow on the mandate and are no part of a row
    brief: str
    follow_up: Callable[[Answers], str | None]  # the message after an answer; None after the last one
    call_tool: Callable[[Answers, ToolCall], str]  # raises ToolError
    verify: Callable[[Answers], Verdict]
    build_row: Callable[[Sequence[Message], Answers, str], Row]  # turns, answers, author; raises AnswerError
    list_observations: Callable[[], list[str]]  # what tools say in the expert's own play
    remake: Callable[[], "Lesson"]  # the same play on the case generated anew


def list_lessons(case: Case, families: Mapping[str, Family] = SOLO_FAMILIES) -> list[Lesson]:
    """The plays on one case: one of a role family, one per seat and ReconcileGPT of the team."""
    if isinstance(case, Scenario):
        return [_open_role_lesson(case, families)]
    game = PlanGame(case)
    meeting = hold_meeting(game)
    return [_open_seat_lesson(game, meeting, name) for name in (*case.seats, RECONCILER)]


def open_lesson(family: str, split: Split, seed: int, index: int, difficulty: int, name: str) -> Lesson:
    """The lesson of a row of these coordinates and this role.

    Raises:
        KeyError: the case has no such role.
    """
    lessons = list_lessons(generate_case(family, split, seed, index, difficulty))
    return {lesson.name: lesson for lesson in lessons}[name]


def _open_role_lesson(scenario: Scenario, families: Mapping[str, Family]) -> Lesson:
    family = families[scenario.family]
    role = SOLO_ROLES[family.role]
    schema = {
        key: value
        for key, value in role.answer.model_json_schema().items()
        if key not in ("description", "title")
    }

    def list_observations() -> list[str]:
        steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
        return [family.call_tool(scenario, step.call) for step in steps if step.call is not None]

    def read_answer(answers: Answers) -> Any:
        return parse_answer(answers[-1], role.answer).model_dump(exclude_unset=True)

    def remake() -> Lesson:
        place = (scenario.split, scenario.seed, scenario.index, scenario.difficulty)
        return _open_role_lesson(family.generate(*place), families)

    return Lesson(
        key=scenario.key,
        case=scenario,
        name=role.name,
        role=role,
        instructions=f"{HOW_TO_WORK} It matches this JSON schema: {json.dumps(schema)}",
        brief=scenario.brief,
        follow_up=lambda answers: None,
        call_tool=lambda answers, call: family.call_tool(scenario, call),
        verify=lambda answers: family.verify(scenario, answers[-1]),
        build_row=partial(_build_row, scenario, role.name, role, scenario.brief, read_answer),
        list_observations=list_observations,
        remake=remake,
    )


def _open_seat_lesson(game: PlanGame, meeting: Meeting, name: str) -> Lesson:
    case = game.case
    assert isinstance(case, TeamScenario)
    part = _Chair(game, meeting) if name == RECONCILER else _Specialist(game, meeting, name)
    role, brief = game.prompt_role(name), meeting.messages[name][0].brief

    def list_observations() -> list[str]:
        calls = [(one, step) for one in meeting.messages[name] for step in one.steps]
        return [_observe(game, name, one, step) for one, step in calls if step.call is not None]

    def remake() -> Lesson:
        return open_lesson(TEAM, case.split, case.seed, case.index, case.difficulty, name)

    return Lesson(
        key=f"{case.key}/{name}",
        case=case,
        name=name,
        role=role,
        instructions=HOW_TO_WORK,
        brief=brief,
        follow_up=part.follow_up,
        call_tool=part.call_tool,
        verify=part.verify,
        build_row=partial(_build_row, case, name, role, brief, part.read_answer),
        list_observations=list_observations,
        remake=remake,
    )


def _build_row(
    case: Case,
    name: str,
    role: Role,
    brief: str,
    read_answer: Callable[[Answers], Any],
    turns: Sequence[Message],
    answers: Answers,
    author: str,
) -> Row:
    messages = [*write_opening(role, brief), *turns]
    return make_row(case, name, brief, messages, list_tools(role), read_answer(answers), author)


def _observe(game: PlanGame, name: str, message: Heard, step: Step) -> str:
    assert step.call is not None
    return game.call_tool(name, step.call, message.reports)


class _Specialist:
    """A specialist's part: its report, then its vote on a draft in which its own offers stand."""

    def __init__(self, game: PlanGame, meeting: Meeting, seat: str) -> None:
        self._game, self._meeting, self._seat = game, meeting, seat

    def _read_table(self, report: str) -> dict[str, dict[str, Any] | None]:
        return {**self._meeting.reports, self._seat: self._game.read_report(self._seat, report)}

    def follow_up(self, answers: Answers) -> str | None:
        if len(answers) > 1:
            return None
        reports = self._read_table(answers[0])
        if reports[self._seat] is None:
            return None
        return self._game.write_vote_brief(self._meeting.drafts[self._seat], self._seat, reports)

    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        return self._game.call_tool(self._seat, call, self._meeting.reports)

    def verify(self, answers: Answers) -> Verdict:
        """The lesser of the verdicts on report and vote."""
        case = self._game.case
        assert isinstance(case, TeamScenario)
        report = verify_report(case, self._seat, answers[0])
        if len(answers) < 2:
            return report if report.reward == 0 else rejected("not_json", "no vote")
        draft = self._meeting.drafts[self._seat]
        decision = None if draft is None else Decision.model_validate(draft)
        escalated = decision is not None and decision.escalate
        plan = None
        if decision is not None and not escalated:
            plan = funded_plan(load_table(self._read_table(answers[0])), decision)
        vote = verify_vote(case, self._seat, plan, escalated, answers[1])
        return min(report, vote, key=lambda verdict: verdict.reward)

    def read_answer(self, answers: Answers) -> Any:
        return parse_answer(answers[0], Report).model_dump()


class _Chair:
    """ReconcileGPT's part: questions, each answered by the expert of the seat, then the decision."""

    def __init__(self, game: PlanGame, meeting: Meeting) -> None:
        self._game, self._reports = game, meeting.messages[RECONCILER][0].reports

    def _hear(self, answers: Answers) -> tuple[dict[str, dict[str, Any] | None], int]:
        """The reports with what replies added, and the number of questions."""
        reports, num_asked = dict(self._reports), 0
        for text in answers:
            asked = self._game.read_ask(text) if num_asked < self._game.most_questions else None
            if asked is None:
                break
            num_asked += 1
            seat, ask = asked["seat"], Ask.model_validate(asked)
            reply = show_reply(self._game, ask, (), with_tools=False)[-1].text
            reports[seat] = self._game.add_offer(
                reports[seat], self._game.read_reply(seat, asked, reports[seat], reply)
            )
        return reports, num_asked

    def follow_up(self, answers: Answers) -> str | None:
        reports, num_asked = self._hear(answers)
        return self._game.write_decision_brief(reports) if num_asked == len(answers) else None

    def call_tool(self, answers: Answers, call: ToolCall) -> str:
        return self._game.call_tool(RECONCILER, call, self._hear(answers)[0])

    def verify(self, answers: Answers) -> Verdict:
        return verify_decision(self._game.case.public, load_table(self._hear(answers)[0]), answers[-1])

    def read_answer(self, answers: Answers) -> Any:
        return self._game.read_decision(self._hear(answers)[0], answers[-1])
