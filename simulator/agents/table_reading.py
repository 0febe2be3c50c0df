"""Reads back what ReconcileGPT reads: offers, needs, vetoes and budget, from the text of either style.

For scripted policies, which know no more than a model would.
"""

import re
from dataclasses import dataclass

from scenarios.company.records import Option
from scenarios.team import CheckedReport, PublicCase, TabledOffer

_BRIEF_END = re.compile(r"Budget:? (\d+)(?: k\$ a month)?\.")
_FULL_OPTION = re.compile(r"Option ([A-Z]): (.+)\. Worth (-?\d+) k\$ (?!a month)[a-z ]+\.")
_FULL_OFFER = re.compile(
    r"- \[(\w+)\] .* (?:offers|proposes|would buy|puts forward|asks for) (.+): cost (\d+) k\$, "
    r"worth (-?\d+) k\$\.( Needed)?"
)
_FULL_FLAG = re.compile(r"- (.+?) (vetoes it|needs a part on it and offers none)")
_SHORT_OPTION = re.compile(r"([A-Z]) (-?\d+): (.+)")
_SHORT_OFFER = re.compile(r"(\w+) (\d+) (-?\d+)( need)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """The table as its text tells it.

    Example: read_table(game.write_decision_brief(reports)).public.budget == 40
    """

    public: PublicCase
    reports: dict[str, CheckedReport]


def read_table(transcript: str) -> ReadTable:
    """Read the last decision brief of the transcript. Options that are ruled out are not in it.

    Raises:
        ValueError: there is none.
    """
    options: dict[str, Option] = {}
    offers: dict[str, list[TabledOffer]] = {}
    needs: dict[str, list[str]] = {}
    vetoes: dict[str, list[str]] = {}
    budget: int | None = None
    for line in _last_brief(transcript):
        if end := _BRIEF_END.search(line):
            budget = int(end[1])
        elif full := _FULL_OPTION.search(line):
            options[full[1]] = Option(letter=full[1], name=full[2], base=int(full[3]))
        elif options and (offer := _FULL_OFFER.match(line)):
            letter = list(options)[-1]
            _add(offers, needs, letter, offer[1], offer[2].split(", "), offer[3], offer[4], offer[5])
        elif options and (flag := _FULL_FLAG.match(line)):
            kept = vetoes if flag[2].startswith("vetoes") else needs
            kept.setdefault(flag[1].lower(), []).append(list(options)[-1])
        elif short := _SHORT_OPTION.search(line):
            letter, base, rest = short.groups()
            options[letter] = Option(letter=letter, name=letter, base=int(base))
            for item in rest.split(", "):
                if given := _SHORT_OFFER.fullmatch(item):
                    _add(offers, needs, letter, given[1], [given[1]], given[2], given[3], given[4])
                elif item.endswith((" veto", " need")):
                    seat, word = item.split()
                    (vetoes if word == "veto" else needs).setdefault(seat, []).append(letter)
    if budget is None:
        raise ValueError("the transcript holds no decision brief")
    seats = tuple(dict.fromkeys([*offers, *needs, *vetoes]))
    return ReadTable(
        public=PublicCase(sector="", situation="", options=options, budget=budget, seats=seats),
        reports={
            seat: CheckedReport(
                offers=tuple(offers.get(seat, ())),
                needs=tuple(needs.get(seat, ())),
                veto=tuple(vetoes.get(seat, ())),
                note="",
                false_claims=(),
            )
            for seat in seats
        },
    )


def _last_brief(transcript: str) -> list[str]:
    """Return the lines from the first option of the last brief to its budget."""
    lines = transcript.splitlines()
    ends = [number for number, line in enumerate(lines) if _BRIEF_END.search(line)]
    if not ends:
        return []
    start = end = ends[-1]
    while start > 0 and not _starts_brief(lines[start]):
        start -= 1
    return lines[start : end + 1]


def _starts_brief(line: str) -> bool:
    """Tell whether the line is that of option A, in either style, or says that it is ruled out."""
    if option := _FULL_OPTION.search(line) or _SHORT_OPTION.search(line):
        return option[1] == "A"
    return re.search(r"\bA (is )?ruled out", line) is not None


def _add(
    offers: dict[str, list[TabledOffer]],
    needs: dict[str, list[str]],
    option: str,
    label: str,
    names: list[str],
    cost: str,
    worth: str,
    needed: str | None,
) -> None:
    seat = label.rstrip("0123456789")
    offers.setdefault(seat, []).append(
        TabledOffer(
            label=label, seat=seat, option=option, choice=tuple(names), cost=int(cost), worth=int(worth)
        )
    )
    if needed and option not in needs.get(seat, ()):
        needs.setdefault(seat, []).append(option)
