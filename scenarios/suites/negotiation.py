"""Scorable negotiation games: issues with options, and for every party secret points and a least total.

After arXiv:2309.17234. Deviations: four parties and ReconcileGPT as a chair without interests; a deal needs
the acceptance of all; the texts are generated. All deals are enumerated: the best one is known exactly.
"""

import json
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from roles.base import Answer
from roles.limits import ANSWER_RULES
from roles.team import SPECIALISTS, Vote
from scenarios.base import check_coordinates
from scenarios.suites.table_talk import MAX_WORDS, Parsed, Reports, TalkCase, TalkGame, Words
from scenarios.team.playable import Seat

NAME = "negotiation"
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

    Example: generate(0, 7, 2).key == "negotiation/0/7/2"
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


def generate(seed: int, index: int, difficulty: int) -> NegotiationCase:
    """Draw a game. Difficulty adds issues (2 to 5), options (3 to 5), and leaves fewer deals that suit all.

    Raises:
        ValueError: a number out of range.
    """
    check_coordinates("test", seed, index, difficulty)
    key = f"{NAME}/{seed}/{index}/{difficulty}"
    for attempt in range(1_000):
        rng = random.Random(f"{key}/{attempt}")
        num_issues, num_options = (difficulty + 5) // 3, 3 + (difficulty - 1) // 4
        topics = tuple((name, options[:num_options]) for name, options in rng.sample(TOPICS, num_issues))
        points = {seat: _draw_points(rng, num_issues, num_options) for seat in SPECIALISTS}
        case = _close(key, difficulty, topics, points, rng)
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


def _close(
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
            situation=_describe(subject, topics),
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


def _describe(subject: str, topics: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
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


_RULE = (
    "Write one JSON object and nothing after it; a deal names one option of every issue by its number, and"
    " holds if all four departments accept it. Without a deal nobody gets more than its least total. Of what"
    f" you say, and of a reason, the others read {MAX_WORDS} words. {ANSWER_RULES}"
)
_EXAMPLES = (
    '{"deal": {"A": 2, "B": 1}, "say": "B1 matters most to me; on A I can give way."}',
    '{"vote": "object", "reason": "Too little for me: move A to 2."}',
    '{"deal": {"A": 2, "B": 1}, "reason": "Everybody gets one first choice."}',
)


class NegotiationGame(TalkGame):
    """The talk about one game.

    Example: NegotiationGame(generate(0, 7, 2)).read_decision({}, '{"deal": {"A": 1, "B": 3}}')
    """

    name = NAME
    report, decision, vote = DealProposal, DealDraft, Vote
    mandates = MappingProxyType(
        {
            False: "You negotiate for your department and get the points that the deal is worth to you. First"
            " propose a deal and say to the others what you like (at most 150 words). Then ReconcileGPT"
            " drafts a deal and you vote: object to a deal below your least total, and never accept one."
            f" {_RULE} Examples of another game, proposal and vote: {_EXAMPLES[0]} {_EXAMPLES[1]}",
            True: "You chair a negotiation of four departments. Each has secret points for every option and a"
            " least total. Draft the deal that all accept with the most points above these totals, summed"
            f" over the departments. If one objects you draft again. {_RULE} Example of another game:"
            f" {_EXAMPLES[2]}",
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
