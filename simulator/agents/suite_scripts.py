"""Scripted players of the suites' games: they read the transcript, and a party holds its own points.

Negotiation: parties without a habit tell points and least totals, and ReconcileGPT drafts the best deal;
`greedy` ones propose their own best deal, and ReconcileGPT takes the most frequent option of each issue. Both
vote by their least total. `random` ones look at nothing. Hidden profiles are prose: only `random` plays them.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from roles.errors import unknown
from roles.team import RECONCILER
from scenarios.suites import Deal, NegotiationCase, NegotiationGame, write_deal
from simulator.engines.scripted import SeededPolicy

MakeScript = Callable[[str | None, str], SeededPolicy]  # habit, seat

_ANSWERS = re.compile(r"^Possible answers: (\[.*\])$", re.MULTILINE)
_DRAFT = re.compile(r"^The draft: (.*)\.$", re.MULTILINE)
_PROPOSAL = re.compile(r"^- \w+ prefers (.*?): (.*)$", re.MULTILINE)
_CHOICE = re.compile(r"\b([A-E])(\d) \(")
_POINTS = re.compile(r"([A-E]) ([\d/]+);")
_LEAST = re.compile(r"at least (\d+)")


def guess_hidden_profile(habit: str | None, seat: str) -> SeededPolicy:
    """Return a member or chair that guesses.

    Raises:
        UserError: any habit but `random`.
    """
    if habit != "random":
        raise unknown("scripted player of hidden-profile", habit or "scripted", ["scripted:random"])

    def play(transcript: str, rng: random.Random) -> str:
        answer = rng.choice(json.loads(_ANSWERS.findall(transcript)[-1]))
        last = transcript.rpartition("<|user|>")[2]
        if seat != RECONCILER and last.rstrip().removesuffix("<|end|><|assistant|>").endswith("Vote."):
            return json.dumps({"vote": "accept", "answer": answer, "reason": ""})
        return json.dumps({"answer": answer, **({"reason": ""} if seat == RECONCILER else {"say": ""})})

    return play


def script_negotiation(cases: Sequence[NegotiationCase]) -> MakeScript:
    """Return the maker of scripted negotiators of these cases.

    Its maker raises:
        UserError: a habit other than None (open), `greedy` and `random`.
    """

    def make(habit: str | None, seat: str) -> SeededPolicy:
        if habit not in (None, "greedy", "random"):
            raise unknown("scripted player of negotiation", habit, ["scripted:greedy", "scripted:random"])
        return _chair(cases, habit) if seat == RECONCILER else _party(cases, habit, seat)

    return make


def _party(cases: Sequence[NegotiationCase], habit: str | None, seat: str) -> SeededPolicy:
    briefs = {NegotiationGame(case).write_report_brief(seat): case for case in cases}

    def play(transcript: str, rng: random.Random) -> str:
        case = next(case for brief, case in briefs.items() if brief in transcript)
        last = transcript.rpartition("<|user|>")[2]
        if "Vote." in last:
            drafted = _DRAFT.findall(last)
            is_enough = bool(drafted) and case.points(seat, _read_choices(drafted[-1])) >= case.least(seat)
            accepts = rng.random() < 0.5 if habit == "random" else is_enough
            return json.dumps({"vote": "accept" if accepts else "object", "reason": ""})
        if habit == "random":
            return write_deal(rng.choice(list(case.deals())), say="")
        best = max(case.deals(), key=lambda deal: case.points(seat, deal))
        return write_deal(best, say="" if habit == "greedy" else _tell(case, seat))

    return play


def _chair(cases: Sequence[NegotiationCase], habit: str | None) -> SeededPolicy:
    situations = {f"{case.situation}\n- ": case for case in cases}  # one may begin like another

    def play(transcript: str, rng: random.Random) -> str:
        case = next(case for situation, case in situations.items() if situation in transcript)
        proposals = _PROPOSAL.findall(transcript)
        wanted = [deal for text, _ in proposals if len(deal := _read_choices(text)) == len(case.topics)]
        if habit == "random" or not wanted:
            return write_deal(rng.choice(list(case.deals())), reason="")
        is_first = "Draft again." not in transcript
        if habit is None and is_first:
            best = _find_best([said for _, said in proposals], case)
            if best is not None:
                return write_deal(best, reason="The best of what was told.")
        rows = [list(row) for row in zip(*wanted, strict=True)]
        picked = [Counter(row).most_common(1)[0][0] if is_first else rng.choice(row) for row in rows]
        return write_deal(tuple(picked), reason="")

    return play


def _tell(case: NegotiationCase, seat: str) -> str:
    rows = case.seats[seat].facts["points"]
    points = " ".join(
        f"{letter} {'/'.join(map(str, row))};" for letter, row in zip(case.options, rows, strict=True)
    )
    return f"My points: {points} at least {case.least(seat)}."


def _find_best(said: Sequence[str], case: NegotiationCase) -> Deal | None:
    """Return the best deal by what the parties told; None where one told nothing that can be read."""
    tables = []
    for text in said:
        rows = [[int(one) for one in row.split("/")] for _, row in _POINTS.findall(text)]
        least = _LEAST.search(text)
        if least is None or [len(row) for row in rows] != [len(options) for _, options in case.topics]:
            return None
        tables.append((rows, int(least[1])))

    def list_gains(deal: Deal) -> list[int]:
        return [
            sum(row[option - 1] for row, option in zip(rows, deal, strict=True)) - least
            for rows, least in tables
        ]

    fair = (deal for deal in case.deals() if min(list_gains(deal)) >= 0)
    return max(fair, key=lambda deal: sum(list_gains(deal)), default=None)


def _read_choices(text: str) -> Deal:
    return tuple(int(number) for _, number in _CHOICE.findall(text))
