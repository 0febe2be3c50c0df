"""Joint games of others that a team plays: hidden profiles from a file, negotiation with secret points.

Each is a game of `simulator.game`: everybody speaks once, ReconcileGPT drafts, the seats vote. No tools, and
not trained on. Hidden profiles come from a user's own file in HiddenBench's layout (arXiv:2505.11556): shared
facts and facts of one seat. Unlike there, ReconcileGPT drafts an answer between the statements and the votes,
and a task has at most as many members as the team has specialists. Negotiation is after arXiv:2309.17234:
every party has secret points for the options of each issue and a least total. Deviations: four parties and
ReconcileGPT as a chair without interests; a deal needs the acceptance of all; the texts are generated. All
deals are enumerated: the best one is known exactly.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from roles.base import Answer, AnswerError, Role, free_text, parse_answer
from roles.errors import UserError
from roles.limits import ANSWER_RULES
from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS, Vote
from scenarios.base import ToolCall, ToolError, check_coordinates
from scenarios.company.records import Part
from scenarios.tasks.question_files import iterate_rows
from scenarios.team.playable import PublicCase, Seat

HIDDEN_PROFILE, NEGOTIATION = "hidden-profile", "negotiation"
Parsed = dict[str, Any]
Reports = Mapping[str, Parsed | None]  # by seat; None for one that cannot be read
MAX_WORDS = 150  # of a statement or reason, as the others read it
_MAX_CHARS = 4_000
Words = Annotated[str, Field(max_length=_MAX_CHARS), free_text(_MAX_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkCase:
    """A case that seats talk about.

    Example: read_hidden_profiles(Path("benchmark.json"))[0].key == "hidden-profile/1"
    """

    key: str
    situation: str  # what everybody knows
    options: tuple[str, ...]
    seats: Mapping[str, Seat]

    @property
    def public(self) -> PublicCase:
        """Return what everybody knows; such a case has neither budget nor company options."""
        return PublicCase(sector="", situation=self.situation, options={}, budget=0, seats=tuple(self.seats))

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...] | None:
        """Return None: nothing is bought."""
        return None


class TalkGame(ABC):
    """Reads and writes what every suite's game does alike; a game adds its schemas, briefs and `settle`."""

    most_questions = 0
    name: ClassVar[str]
    mandates: ClassVar[Mapping[bool, str]]  # of ReconcileGPT (True) and of the other seats
    report: ClassVar[type[Answer]]
    decision: ClassVar[type[Answer]]
    vote: ClassVar[type[Answer]]

    def without_questions(self) -> Self:
        """Return the game: nobody asks in it."""
        return self

    @abstractmethod
    def settle(self, parsed: Parsed) -> Parsed | None:
        """Return an answer of the right schema as the case reads it; None for one that the case forbids."""

    @abstractmethod
    def describe(self, parsed: Parsed) -> str:
        """Say what an answer chooses, in words for the others."""

    @abstractmethod
    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write what ReconcileGPT drafts from."""

    def read_report(self, seat: str, text: str) -> Parsed | None:
        """Read a seat's statement; None for a malformed one."""
        return self._read(text, self.report)

    def read_decision(self, reports: Reports, text: str) -> Parsed | None:
        """Read ReconcileGPT's draft; None for a malformed one."""
        return self._read(text, self.decision)

    def read_vote(self, text: str) -> Parsed | None:
        """Read a vote; None for a malformed one."""
        return self._read(text, self.vote)

    def read_ask(self, text: str) -> Parsed | None:
        """Return None: ReconcileGPT asks nothing."""
        return None

    def read_reply(self, seat: str, ask: Parsed, known: Parsed | None, text: str) -> Parsed | None:
        """Return None: nobody is asked."""
        return None

    def add_offer(self, known: Parsed | None, offer: Parsed | None) -> Parsed | None:
        """Return the statement as it was."""
        return known

    def write_ask(self, seat: str, ask: Parsed) -> str:
        """Return "": nobody is asked."""
        return ""

    def write_vote_brief(self, decision: Parsed | None, seat: str, reports: Reports) -> str:
        """Write what all said and what ReconcileGPT drafted."""
        others = {one: said for one, said in reports.items() if one != seat}
        return f"{self.write_statements(others)}\n{self._write_draft(decision)}\nVote."

    def write_objection_brief(self, votes: Reports) -> str:
        """Write the objections to the draft."""
        lines = [
            f"- {ROLES[seat].title} objects: {shorten(vote['reason'])}"
            for seat, vote in votes.items()
            if vote is not None and vote["vote"] == "object"
        ]
        return "\n".join([*lines, "Draft again."])

    def write_statements(self, reports: Reports) -> str:
        """Write one line for each seat."""
        return "\n".join(
            f"- {ROLES[seat].title} said nothing that could be read."
            if said is None
            else f"- {ROLES[seat].title} prefers {self.describe(said)}: {shorten(said['say'])}"
            for seat, said in reports.items()
        )

    def prompt_role(self, seat: str, *, with_tools: bool = True) -> Role:
        """Return the seat as this game introduces it."""
        is_chair = seat == RECONCILER
        return Role(
            name=f"{self.name}-{seat}",
            title=ROLES[seat].title,
            mandate=self.mandates[is_chair],
            answer=self.decision if is_chair else self.report,
        )

    def call_tool(self, seat: str, call: ToolCall, reports: Reports) -> str:
        """Refuse the call.

        Raises:
            ToolError: always.
        """
        raise ToolError("there are no tools here")

    def _write_draft(self, decision: Parsed | None) -> str:
        if decision is None:
            return "ReconcileGPT drafted nothing that could be read."
        return f"The draft: {self.describe(decision)}.\nReason: {shorten(decision['reason'])}"

    def _read(self, text: str, schema: type[Answer]) -> Parsed | None:
        try:
            return self.settle(parse_answer(text, schema).model_dump(mode="json"))
        except AnswerError:
            return None


def shorten(text: str) -> str:
    """Return at most MAX_WORDS words in one line."""
    return " ".join(text.split()[:MAX_WORDS]) or "(nothing)"


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


_CHOICE_EXAMPLES = (
    '{"answer": "Pier Hall", "say": "The roof of North Hall leaks."}',
    '{"vote": "object", "answer": "Pier Hall", "reason": "North Hall is wet."}',
    '{"answer": "Pier Hall", "reason": "The only dry hall for 200 guests."}',
)
_CHOICE_RULE = (
    "Write one JSON object and nothing after it; an answer is one of the possible answers, word for word. Of"
    f" what you say, and of a reason, the others read {MAX_WORDS} words. {ANSWER_RULES}"
)


class HiddenProfileGame(TalkGame):
    """The group's talk about one task.

    Example: HiddenProfileGame(case).read_decision({}, '{"answer": "Pier"}')
    """

    name = HIDDEN_PROFILE
    report, decision, vote = Preference, Choice, MemberVote
    mandates = MappingProxyType(
        {
            False: "You are a member of a group that must choose one answer together. First write the answer"
            " that you prefer now, and what the group should hear (at most 150 words). Then you read what the"
            " others said and the answer that ReconcileGPT drafted, and vote: accept or object, your own"
            f" final answer, and a reason. {_CHOICE_RULE} Examples of another question, statement and vote:"
            f" {_CHOICE_EXAMPLES[0]} {_CHOICE_EXAMPLES[1]}",
            True: "You lead a group that must choose one answer together. From what all know and what the"
            " members say, draft the answer that is right. If members object you draft again."
            f" {_CHOICE_RULE} Example of another question: {_CHOICE_EXAMPLES[2]}",
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
        case = deal_facts(task)
        if case.key in cases:
            raise UserError(f"{path} row {number}: the id {task.id!r} again; give every task its own")
        cases[case.key] = case
    if not cases:
        raise UserError(f"{path} holds no task; --tasks takes HiddenBench's layout")
    return list(cases.values())


def deal_facts(task: HiddenProfileTask) -> HiddenProfileCase:
    """Deal a task's hidden facts to seats; every seat's facts stand in another random order."""
    key = f"{HIDDEN_PROFILE}/{task.id}"
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
        shared=tuple(shuffle(HIDDEN_PROFILE, [])),
        all_facts=tuple(shuffle(RECONCILER, task.hidden_information)),
    )


def normalise(text: str) -> str:
    """Return the text without differences of case and white space."""
    return " ".join(text.casefold().split())


LETTERS = "ABCDE"
EASIEST, HARDEST = 0.5, 0.01  # share of all deals that every party can accept, at difficulty 1 and 10
TOTAL = 100  # points of a party's best deal
MAX_SLACK = 5  # points by which a party's least total may lie below the common bound
SUBJECTS = (
    "a new ticket system",
    "a second warehouse",
    "a shared help desk",
    "the move to a new office",
    "a backup data centre",
    "a fleet of delivery vans",
    "a customer portal",
    "an audit of all suppliers",
)
TOPICS = (
    ("Start", ("next week", "in two weeks", "next month", "next quarter", "next year")),
    ("Supplier", ("in house", "the present one", "a new local one", "a new foreign one", "two of them")),
    ("Who pays", ("IT", "operations", "half and half", "by use", "head office")),
    ("Hours of service", ("9 to 17", "7 to 19", "6 to 22", "weekdays around the clock", "always")),
    ("Test phase", ("none", "one week", "two weeks", "one month", "three months")),
    ("Contract", ("by the month", "one year", "two years", "three years", "five years")),
    ("Training", ("nobody", "team leads", "one person per site", "half the staff", "everybody")),
)

Deal = tuple[int, ...]  # option of each issue, counted from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationCase(TalkCase):
    """One game; a party's facts are its points by issue and its least total.

    Example: draw_negotiation(0, 7, 2).key == "negotiation/0/7/2"
    """

    difficulty: int
    topics: tuple[tuple[str, tuple[str, ...]], ...]  # issue -> its options
    best: int  # points above the least totals, summed, of the best deal that all can accept; at least 1

    def points(self, seat: str, deal: Deal) -> int:
        """Return the party's points of a deal, 0 to 100."""
        own: list[list[int]] = self.seats[seat].facts["points"]
        return sum(row[option - 1] for row, option in zip(own, deal, strict=True))

    def least(self, seat: str) -> int:
        """Return the fewest points that the party accepts."""
        return int(self.seats[seat].facts["least"])

    def surplus(self, deal: Deal) -> int | None:
        """Return the points above the least totals, summed; None where a party gets fewer than its least."""
        above = [self.points(seat, deal) - self.least(seat) for seat in self.seats]
        return None if min(above) < 0 else sum(above)

    def deals(self) -> Iterator[Deal]:
        """Yield every deal."""
        return product(*(range(1, len(options) + 1) for _, options in self.topics))


def draw_negotiation(seed: int, index: int, difficulty: int) -> NegotiationCase:
    """Draw a game. Difficulty adds issues (2 to 5), options (3 to 5), and leaves fewer deals that suit all.

    Raises:
        ValueError: a number out of range.
    """
    check_coordinates("test", seed, index, difficulty)
    key = f"{NEGOTIATION}/{seed}/{index}/{difficulty}"
    for attempt in range(1_000):
        rng = random.Random(f"{key}/{attempt}")
        num_issues, num_options = (difficulty + 5) // 3, 3 + (difficulty - 1) // 4
        topics = tuple((name, options[:num_options]) for name, options in rng.sample(TOPICS, num_issues))
        points = {seat: _draw_points(rng, num_issues, num_options) for seat in SPECIALISTS}
        case = _set_least_totals(key, difficulty, topics, points, rng)
        if case.best >= 1:
            return case
    raise AssertionError(f"{key}: no game with a surplus")


def _draw_points(rng: random.Random, num_issues: int, num_options: int) -> list[list[int]]:
    """Return points by issue and option; the best options sum up to TOTAL, the others are worth less."""
    cuts = sorted(rng.sample(range(1, TOTAL // 5), num_issues - 1))
    weights = [5 * (end - start) for start, end in zip([0, *cuts], [*cuts, TOTAL // 5], strict=True)]
    rows = [[weight, *(rng.randrange(weight) for _ in range(num_options - 1))] for weight in weights]
    for row in rows:
        rng.shuffle(row)
    return rows


def _set_least_totals(
    key: str,
    difficulty: int,
    topics: tuple[tuple[str, tuple[str, ...]], ...],
    points: Mapping[str, list[list[int]]],
    rng: random.Random,
) -> NegotiationCase:
    """Set the least totals so that the difficulty's share of all deals, or more, suits everybody."""

    subject = rng.choice(SUBJECTS)

    def with_least(least: Mapping[str, int], best: int) -> NegotiationCase:
        return NegotiationCase(
            key=key,
            difficulty=difficulty,
            situation=_describe_issues(subject, topics),
            options=tuple(LETTERS[: len(topics)]),
            seats={
                seat: Seat(role=seat, facts={"points": rows, "least": least[seat]})
                for seat, rows in points.items()
            },
            topics=topics,
            best=best,
        )

    open_case = with_least(dict.fromkeys(points, 0), 0)
    worst = sorted(min(open_case.points(seat, deal) for seat in points) for deal in open_case.deals())
    share = EASIEST * (HARDEST / EASIEST) ** ((difficulty - 1) / 9)
    bound = worst[-max(1, round(share * len(worst)))]
    least = {seat: max(1, bound - rng.randint(0, MAX_SLACK)) for seat in points}
    case = with_least(least, 0)
    found = [surplus for deal in case.deals() if (surplus := case.surplus(deal)) is not None]
    return with_least(least, max(found, default=0))


def _describe_issues(subject: str, topics: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    lines = [
        f"{letter}. {name}: " + ", ".join(f"{number} {word}" for number, word in enumerate(options, 1))
        for letter, (name, options) in zip(LETTERS, topics, strict=False)
    ]
    return "\n".join([f"Four departments negotiate about {subject}.", "Issues and options:", *lines])


class DealProposal(Answer):
    """A party's opening. Example: DealProposal(deal={"A": 2, "B": 1}, say="B1 matters most to me.")"""

    deal: dict[str, int]
    say: Words = ""


class DealDraft(Answer):
    """ReconcileGPT's draft. Example: DealDraft(deal={"A": 2, "B": 1}, reason="CTO gets B1.")"""

    deal: dict[str, int]
    reason: Words = ""


_DEAL_RULE = (
    "Write one JSON object and nothing after it; a deal names one option of every issue by its number, and"
    " holds if all four departments accept it. Without a deal nobody gets more than its least total. Of what"
    f" you say, and of a reason, the others read {MAX_WORDS} words. {ANSWER_RULES}"
)
_DEAL_EXAMPLES = (
    '{"deal": {"A": 2, "B": 1}, "say": "B1 matters most to me; on A I can give way."}',
    '{"vote": "object", "reason": "Too little for me: move A to 2."}',
    '{"deal": {"A": 2, "B": 1}, "reason": "Everybody gets one first choice."}',
)


class NegotiationGame(TalkGame):
    """The talk about one game.

    Example: NegotiationGame(draw_negotiation(0, 7, 2)).read_decision({}, '{"deal": {"A": 1, "B": 3}}')
    """

    name = NEGOTIATION
    report, decision, vote = DealProposal, DealDraft, Vote
    mandates = MappingProxyType(
        {
            False: "You negotiate for your department and get the points that the deal is worth to you. First"
            " propose a deal and say to the others what you like (at most 150 words). Then ReconcileGPT"
            " drafts a deal and you vote: object to a deal below your least total, and never accept one."
            f" {_DEAL_RULE} Examples of another game, proposal and vote: {_DEAL_EXAMPLES[0]}"
            f" {_DEAL_EXAMPLES[1]}",
            True: "You chair a negotiation of four departments. Each has secret points for every option and a"
            " least total. Draft the deal that all accept with the most points above these totals, summed"
            f" over the departments. If one objects you draft again. {_DEAL_RULE} Example of another game:"
            f" {_DEAL_EXAMPLES[2]}",
        }
    )

    def __init__(self, case: NegotiationCase) -> None:
        self._case = case

    def settle(self, parsed: Parsed) -> Parsed | None:
        """Return the answer; None for a deal that leaves out an issue or names what there is not."""
        deal = parsed.get("deal")
        if deal is None:
            return parsed
        counts = {
            letter: len(options)
            for letter, (_, options) in zip(self._case.options, self._case.topics, strict=True)
        }
        is_deal = deal.keys() == counts.keys() and all(1 <= deal[one] <= counts[one] for one in counts)
        return {**parsed, "deal": {one: deal[one] for one in counts}} if is_deal else None

    def describe(self, parsed: Parsed) -> str:
        """Return a deal as "A2 (in two weeks), B1 (in house)"."""
        return ", ".join(
            f"{letter}{number} ({options[number - 1]})"
            for (letter, number), (_, options) in zip(parsed["deal"].items(), self._case.topics, strict=True)
        )

    def write_report_brief(self, seat: str, *, with_tools: bool = True) -> str:
        """Write the issues and what they are worth to the party."""
        own = self._case.seats[seat].facts
        points = [
            f"{letter}: {', '.join(map(str, row))}"
            for letter, row in zip(self._case.options, own["points"], strict=True)
        ]
        return "\n".join(
            [
                self._case.situation,
                "Your secret points, by option in this order:",
                *points,
                f"A deal is worth the sum of its options. Your least total is {own['least']}.",
                "Write your proposal.",
            ]
        )

    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write the issues and what the parties say."""
        return f"{self._case.situation}\n{self.write_statements(reports)}\nDraft the deal."


def read_deal(parsed: Parsed) -> Deal:
    """Return the deal of a proposal or draft that a game has read."""
    return tuple(parsed["deal"].values())


def write_deal(deal: Deal, **words: str) -> str:
    """Write a deal as an answer.

    Example: write_deal((2, 1), say="") == '{"deal": {"A": 2, "B": 1}, "say": ""}'
    """
    return json.dumps({"deal": dict(zip(LETTERS, deal, strict=False)), **words})
