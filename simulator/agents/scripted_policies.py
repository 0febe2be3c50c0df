"""Ready policies for the scripted engine: experts, and baselines that do not look. No torch.

They read the transcript as a model would; a specialist's also hold the scenarios and know their own by the
brief, and ReconcileGPT's read offers, needs, vetoes and budget from the text of either style. Habits and
chance come from the engine's random source, so that a session always plays the same.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from roles.errors import unknown
from roles.team import RECONCILER, Ask, AskMessage, Decision, Report
from scenarios.base import Family, Scenario, Step, ToolCall
from scenarios.company.records import Option
from scenarios.registry import FAMILIES
from scenarios.team import CheckedReport, PlanGame, PlayableCase, PublicCase, TabledOffer
from scenarios.team.experts import (
    FUNDING_HABITS,
    REPORT_HABITS,
    best_reply,
    best_report,
    expert_decision,
    expert_report,
    make_offer,
    sample_habit,
)
from scenarios.team.funding import list_fundings
from scenarios.team.offers import is_needed, is_vetoed
from scenarios.team.questions import choose_question
from scenarios.team.texts.full import SEAT_TOOLS
from simulator.engines.scripted import ScriptedPolicy, SeededPolicy
from simulator.game import MakeGame, TeamGame
from simulator.tool_calls import OPEN, format_tool_call

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


_VOTE_BRIEF = re.compile(
    r"The decision is option (?P<full>[A-Z])\. (?P<own>Your part is funded|No part of yours)"
    r"|Decision (?P<short>[A-Z]) (?P<with>with|without) your part\. Vote\."
    r"|(?P<escalated>hands the case to a person\.|Escalated\. Vote\.)"
    r"|(?P<none>came to no decision|No decision\. Vote\.)"
)
_ASK = re.compile(
    r"another offer on option (?P<full>[A-Z]) that costs at most (?P<most>\d+)"
    r"|Offer (?P<short>[A-Z]) at most (?P<least>\d+)\."
)
_ASK_RULE = re.compile(r"you may ask one seat for another offer, (?:once|at most (\d+) times);")
_ASKED = re.compile(r'\{"ask": (\{[^}]*\})\}')

_HABIT = re.compile(rf"\b({'|'.join(REPORT_HABITS)})\n{re.escape(OPEN)}")


WriteReport = Callable[[PlayableCase, str, random.Random], Report]
WriteDecision = Callable[[ReadTable, random.Random], Decision | str]


def oracle_specialist(
    scenarios: Sequence[PlayableCase], role: str, *, habit: str | None = None
) -> SeededPolicy:
    """Return the expert of a seat; it offers by `habit`, or (None) by one drawn by the experts' shares.

    Where it has tools it measures every part before it offers it.
    """

    def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
        named = _HABIT.search(played)  # by its first call
        chosen = named[1] if named else habit or sample_habit(rng, REPORT_HABITS)
        text = expert_report(case, role, chosen).text
        return _next_step(played, [*_measure_offers(chosen, text), Step(text=text)]) if has_tools else text

    return seat_policy(scenarios, role, report)


def oracle_reconciler(*, habit: str | None = None, asks: bool = False) -> SeededPolicy:
    """Return the expert reconciler; it funds by `habit` (None: drawn by the experts' shares).

    With `asks` it asks where demonstrations do (`choose_question`), as often as its system text allows.
    """

    def speak(transcript: str, rng: random.Random) -> str:
        table = read_table(transcript)
        ask = _choose_ask(table, transcript) if asks else None
        if ask is not None:
            return json.dumps(AskMessage(ask=ask).model_dump())
        return expert_decision(table.public, table.reports, habit or sample_habit(rng, FUNDING_HABITS)).text

    return speak


def _choose_ask(table: ReadTable, transcript: str) -> Ask | None:
    """Return the question that pays; None where none does or all that the system text allows are asked."""
    rule = _ASK_RULE.search(transcript)
    if rule is None:
        return None
    _example, *asked = (Ask.model_validate_json(one) for one in _ASKED.findall(transcript, rule.end()))
    return choose_question(table.public, table.reports, asked) if len(asked) < int(rule[1] or 1) else None


def oracle_team(
    scenarios: Sequence[PlayableCase],
    *,
    report_habit: str | None = None,
    funding_habit: str | None = None,
    asks: bool = False,
) -> dict[str, SeededPolicy]:
    """Return experts for every seat of these scenarios and the reconciler, each under its role's name.

    `asks`: see `oracle_reconciler`.
    """
    seats = {
        role: oracle_specialist(scenarios, role, habit=report_habit) for role in list_specialists(scenarios)
    }
    return {**seats, RECONCILER: oracle_reconciler(habit=funding_habit, asks=asks)}


def baseline_team(scenarios: Sequence[PlayableCase], name: str) -> dict[str, SeededPolicy]:
    """Return a team of BASELINES for every seat of these scenarios and the reconciler.

    Raises:
        UserError: unknown name.
    """
    if name not in BASELINES:
        raise unknown("baseline", name, list(BASELINES))
    write_report, decide = BASELINES[name]

    def make(role: str) -> SeededPolicy:
        def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
            return json.dumps(write_report(case, role, rng).model_dump())

        return seat_policy(scenarios, role, report)

    return {
        **{role: make(role) for role in list_specialists(scenarios)},
        RECONCILER: reconciler_policy(decide),
    }


def remember_cases(cases: list[PlayableCase], make_game: MakeGame = PlanGame) -> MakeGame:
    """Return a maker of games that adds every case it sees to those that experts know.

    For episodes in which cases arise while they are played: experts who were given this list play them.
    """
    known = {id(case) for case in cases}

    def make(case: PlayableCase) -> TeamGame:
        if id(case) not in known:
            known.add(id(case))
            cases.append(case)
        return make_game(case)

    return make


def list_specialists(scenarios: Iterable[PlayableCase]) -> list[str]:
    """List the seats of these scenarios, each once."""
    return list(dict.fromkeys(role for scenario in scenarios for role in scenario.seats))


def _offer_randomly(case: PlayableCase, seat: str, rng: random.Random) -> Report:
    offers = []
    for option in case.options:
        open_parts = [part for part in case.parts_of(seat, option) or () if part.choice and part.keeps_limit]
        if open_parts:
            offers.append(make_offer(rng.choice(open_parts)))
    needs = [option for option in case.options if is_needed(case, seat, option)]
    veto = [option for option in case.options if is_vetoed(case, seat, option)]
    return Report(offers=offers, needs=needs, veto=veto)


def _decide_randomly(table: ReadTable, rng: random.Random) -> Decision:
    option = rng.choice(list(table.public.options))
    plans = list_fundings(table.public, table.reports, option)
    fund = [offer.label for offer in rng.choice(plans).offers] if plans else []
    return Decision(option=option, fund=fund, escalate=False)


def _fund_all(table: ReadTable, rng: random.Random) -> Decision:
    first = next(iter(table.public.options))
    offers = {
        offer.seat: offer.label
        for report in table.reports.values()
        for offer in report.offers
        if offer.option == first
    }
    return Decision(option=first, fund=list(offers.values()), escalate=False)


def _fund_nothing(table: ReadTable, rng: random.Random) -> Decision:
    base = table.public.base
    return Decision(option=max(base, key=base.__getitem__), fund=[], escalate=False)


def _report_nothing(case: PlayableCase, seat: str, rng: random.Random) -> Report:
    return Report(offers=[], needs=[], veto=[])


def _report_by(habit: str) -> WriteReport:
    return lambda case, seat, rng: best_report(case, seat, habit)


def _decide_by(habit: str) -> WriteDecision:
    return lambda table, rng: expert_decision(table.public, table.reports, habit).text


BASELINES: Mapping[str, tuple[WriteReport, WriteDecision]] = {
    "random": (_offer_randomly, _decide_randomly),  # any part that keeps the limit, any plan that can be run
    "constant": (_report_by("full"), _fund_all),  # the first option, one offer of every seat
    "greedy": (_report_by("full"), _decide_by("worth")),  # every seat its largest part, funded by worth
    "blind": (_report_nothing, _fund_nothing),  # the public favourite, nothing funded
}


def seat_policy(
    scenarios: Sequence[PlayableCase],
    role: str,
    report: Callable[[PlayableCase, str, bool, random.Random], str],
) -> SeededPolicy:
    """Return a policy of the seat: its report, its best reply to a question, the right vote."""
    find_case = _index_briefs(scenarios, role)

    def speak(transcript: str, rng: random.Random) -> str:
        case, position = find_case(transcript)
        played = transcript[position:]
        if vote := _last(_VOTE_BRIEF, played):
            return json.dumps({"vote": _choose_vote(case, role, vote)})
        if question := _last(_ASK, played):
            amount = int(question["most"] or question["least"])
            ask = Ask(seat=role, option=question["full"] or question["short"], cost_at_most=amount)
            return json.dumps(best_reply(case, role, ask).model_dump())
        return report(case, played, SEAT_TOOLS in transcript, rng)

    return speak


def reconciler_policy(decide: WriteDecision) -> SeededPolicy:
    def speak(transcript: str, rng: random.Random) -> str:
        decision = decide(read_table(transcript), rng)
        return decision if isinstance(decision, str) else json.dumps(decision.model_dump(mode="json"))

    return speak


def _measure_offers(habit: str, text: str) -> list[Step]:
    """Return one call of measure for every part that the report offers; the first one names the habit."""
    offers = json.loads(text[text.index("{") :])["offers"]
    arguments = [{"option": offer["option"], "part": offer["part"]} for offer in offers]
    return [
        Step(text="" if number else f"{habit}\n", call=ToolCall(name="measure", arguments=given))
        for number, given in enumerate(arguments)
    ]


def _choose_vote(case: PlayableCase, role: str, brief: re.Match[str]) -> str:
    """Return the right vote on what the brief tells: object to no decision or a broken own limit."""
    if brief["escalated"]:
        return "accept"
    if brief["none"]:
        return "object"
    option = brief["full"] or brief["short"]
    is_funded = (brief["own"] or "").startswith("Your") or brief["with"] == "with"
    broken = is_vetoed(case, role, option) or (is_needed(case, role, option) and not is_funded)
    return "object" if broken else "accept"


def _index_briefs(scenarios: Sequence[PlayableCase], role: str) -> Callable[[str], tuple[PlayableCase, int]]:
    """Return the search for the case whose brief a transcript holds last, and where that brief ends.

    Cases that are added to `scenarios` later are found, too.
    """
    by_line: dict[str, list[tuple[str, PlayableCase]]] = {}
    num_indexed = 0

    def index() -> None:
        nonlocal num_indexed
        for case in scenarios[num_indexed:]:
            num_indexed += 1
            if role not in case.seats:
                continue
            briefs = [PlanGame(case, "short").write_report_brief(role)]
            briefs += [PlanGame(case).write_report_brief(role, with_tools=tools) for tools in (True, False)]
            for brief in dict.fromkeys(briefs):
                inner = brief.split("\n")[1:-1]  # other words of the chat may stand beside first and last
                by_line.setdefault(max(inner, key=len), []).append((brief, case))

    def find(transcript: str) -> tuple[PlayableCase, int]:
        index()
        for line in reversed(transcript.split("\n")):
            found = [(transcript.rfind(brief), brief, case) for brief, case in by_line.get(line, ())]
            position, brief, case = max(found, key=lambda one: one[0], default=(-1, "", None))
            if case is not None and position >= 0:
                return case, position + len(brief)
        raise ValueError(f"the transcript holds no brief of {role}")

    return find


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match; None for none."""
    found = list(pattern.finditer(text))
    return found[-1] if found else None


def oracle_solo(
    scenarios: Sequence[Scenario], *, seed: int = 0, families: Mapping[str, Family] = FAMILIES
) -> ScriptedPolicy:
    """Return the expert of a role's own family: it plays the demonstration, tool calls included."""
    demonstrations = [
        (one.brief, families[one.family].demonstrate(one, random.Random(f"{seed}/{one.key}")))
        for one in scenarios
    ]

    def speak(transcript: str) -> str:
        for brief, steps in demonstrations:
            if brief in transcript:
                return _next_step(transcript[transcript.index(brief) + len(brief) :], steps)
        raise ValueError("the transcript opens with none of the oracle's scenarios")

    return speak


def _next_step(played: str, steps: Sequence[Step]) -> str:
    """Return the first step that the transcript does not hold yet (the last one again after the end)."""
    text, position = "", 0
    for step in steps:
        text = step.text if step.call is None else format_tool_call(step.text, step.call)
        found = played.find(text, position)
        if found < 0:
            break
        position = found + len(text)
    return text
