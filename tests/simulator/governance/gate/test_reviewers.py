"""Reviewers and their desk: exact words, stated error rate, waiting cases, answers that are kept."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM, stand_at_gate, yes_man

from emads.seats.person import HELP, TerminalReviewer
from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from serving.review.request_view import render_request
from simulator.conflicts import Conflict
from simulator.governance.proposal import (
    CaseWords,
    OfferLine,
    OptionLine,
    Proposal,
    ReportLine,
    ReviewRequest,
    ReviewResponse,
)
from simulator.governance.reviewers import AbsentReviewer, SimulatedReviewer, score_by_worth
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError
from simulator.terminal import Terminal

REPORT = ReportLine(
    offers=[OfferLine(option="B", part=["spare node"], cost=8, worth=21, is_funded=True)],
    needs=["B"],
    veto=["A"],
    note="B is sound.",
    num_false_claims=1,
)
WORTH = {"A": 0.2, "B": 1.0, "C": 0.0, "none": 0.0}


def show(option: str = "B", *, thread: str = "t", stays_out: str = "") -> ReviewRequest:
    proposal = Proposal(
        thread=thread,
        case="c",
        attempt=0,
        revision=0,
        option=option,
        decision_type="contested",
        risk_score=4,
        reason="B keeps every limit.",
        options=[
            OptionLine(
                option=letter,
                base=20,
                worth=None if letter == stays_out else worth,
                cost=8,
                fund=["cto"],
                obstacle="ruled out" if letter == stays_out else "",
            )
            for letter, worth in (("A", 20), ("B", 80), ("C", 0))
        ],
        budget=40,
        reserve=8,
        cost=8,
        worth=80,
        conflicts=[Conflict(option="A", wanted_by=["coo"], ruled_out_by=["cto"], over_budget=0)],
        conditions=[],
        responsible=["cto"],
        accountable="cto",
        consulted=["cost"],
        parts=[],
        precedents=[],
        words=CaseWords(title="Where to store our data", context="", meanings={"B": "A cloud"}),
        reports={"cto": REPORT, "cost": None},
        changes=["option: A before, B now"],
    )
    return ReviewRequest(
        thread=thread,
        interrupt_id="i",
        digest=proposal.digest,
        proposal=proposal,
        refusal="",
    )


def ask(reviewer: SimulatedReviewer, request: ReviewRequest) -> ReviewResponse:
    return asyncio.run(reviewer.review(request))


def expert(error_rate: float = 0.0, seed: int = 0) -> SimulatedReviewer:
    return SimulatedReviewer(lambda request, option: WORTH[option], error_rate=error_rate, seed=seed)


def test_the_simulated_reviewer_follows_its_score() -> None:
    assert ask(expert(), show("B")).decision == "approve"
    assert ask(expert(), show("A")).decision == "reject"
    assert ask(expert(), show("none")) == ReviewResponse(decision="edit", option="B")


def test_an_option_that_is_out_is_not_asked_for_again() -> None:
    assert ask(expert(), show("A", stays_out="B")).decision == "approve"
    assert ask(expert(), show("none", stays_out="B")) == ReviewResponse(decision="edit", option="A")


@pytest.mark.parametrize("error_rate", [0.0, 0.1, 0.5, 1.0])
def test_the_error_rate_is_the_stated_one(error_rate: float) -> None:
    reviewer, count = expert(error_rate), 2000
    wrong = sum(ask(reviewer, show("A", thread=f"t{n}")).decision == "approve" for n in range(count))
    assert wrong / count == pytest.approx(error_rate, abs=0.03)


def test_the_same_seed_and_proposal_give_the_same_answer() -> None:
    answers = [[ask(expert(0.5, seed), show("A", thread=f"t{n}")) for n in range(40)] for seed in (0, 0, 1)]
    assert answers[0] == answers[1] != answers[2]


def test_worth_is_that_of_the_proposed_plan_and_of_the_best_plan_elsewhere() -> None:
    cheap = show("A").model_copy(update={"proposal": show("A").proposal.model_copy(update={"worth": 70})})
    assert [score_by_worth(cheap, option) for option in ("A", "B", "C", "none")] == [70, 80, 0, 0]
    assert ask(SimulatedReviewer(score_by_worth, least_share=0.85), cheap).decision == "approve"
    assert ask(SimulatedReviewer(score_by_worth, least_share=0.9), cheap).decision == "reject"


@pytest.mark.parametrize("options", [{"error_rate": -0.1}, {"error_rate": 1.1}, {"least_share": 2.0}])
def test_impossible_rates_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must be 0 to 1"):
        SimulatedReviewer(score_by_worth, **options)


def at_terminal(*lines: str) -> tuple[ReviewResponse | None, str]:
    """What comes of these typed lines, and what was printed."""
    typed: Iterator[str] = iter(lines)
    printed: list[str] = []

    def read_line(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    terminal = Terminal(read_line=read_line, write=printed.append, is_terminal=lambda: True)
    reviewer = TerminalReviewer(terminal)
    return asyncio.run(reviewer.review(show())), "\n".join(printed)


@pytest.mark.parametrize("lines", [("approve",), ("yes", "y", "ok", "Approve", "true", "", "approve ")])
def test_only_the_exact_word_approves(lines: tuple[str, ...]) -> None:
    response, printed = at_terminal(*lines)
    assert response == ReviewResponse(decision="approve")
    assert printed.count("is none of approve, edit, reject") == len(lines) - 1


def test_edit_and_reject_at_the_terminal() -> None:
    assert at_terminal("edit", "Z", "C")[0] == ReviewResponse(decision="edit", option="C")
    assert at_terminal("reject", "too dear")[0] == ReviewResponse(decision="reject", feedback="too dear")
    assert at_terminal("reject", "x" * 5000)[0] == ReviewResponse(decision="reject", feedback="x" * 2000)


def test_end_of_input_decides_nothing() -> None:
    assert at_terminal()[0] is None
    assert at_terminal("maybe")[0] is None


def test_without_a_terminal_there_is_no_terminal_reviewer() -> None:
    with pytest.raises(UserError, match="--reviewer simulated"):
        TerminalReviewer(Terminal(is_terminal=lambda: False))


def test_nothing_in_a_request_moves_the_cursor() -> None:
    hostile = show().model_copy(update={"refusal": "\x1b[2Jall clear\u202e"})
    text = render_request(hostile)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "risk 4 of 12" in text
    assert "Cost on B: no valid report" in text


def test_a_case_waits_for_an_absent_reviewer_and_goes_on_with_the_desks_answer(tmp_path: Path) -> None:
    """The way of a web reviewer: list, show, submit, play again."""
    cases = draw_cases(1)

    async def run() -> None:
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            services.reviewers.register("ann")
            services.reviewers.register("bob")
            (waiting,) = await play_governed(cases, services, make_seating(cases), AbsentReviewer(), CALM)
            assert waiting.status == "waiting"
            (request,) = services.gate.list_open()
            assert request.thread == waiting.thread
            with pytest.raises(NotApprovedError, match="not the one"):
                services.gate.submit(
                    request.interrupt_id, "0" * 64, ReviewResponse(decision="approve"), "ann"
                )
            services.gate.submit(
                request.interrupt_id, request.digest, ReviewResponse(decision="approve"), "ann"
            )
            assert services.gate.list_open() == []
            with pytest.raises(NotApprovedError, match="was settled"):
                services.gate.submit(
                    request.interrupt_id, request.digest, ReviewResponse(decision="reject"), "bob"
                )
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            (done,) = await play_governed(cases, services, make_seating(cases), AbsentReviewer(), CALM)
            assert done.status == "completed"
            (again,) = await play_governed(cases, services, make_seating(cases), yes_man(), CALM)
            assert again == done

    asyncio.run(run())


def test_the_desk_knows_no_other_request(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            with pytest.raises(NotApprovedError, match="no such request"):
                stand.services.gate.submit("0" * 32, "0" * 64, ReviewResponse(decision="approve"), "ann")

    asyncio.run(run())


def test_the_terminal_shows_the_case_the_plan_and_what_changed() -> None:
    text = render_request(show())
    for words in (
        "Where to store our data",
        "First plan: option B. It costs 8 of 40 k$ (reserve 8 k$) and promises 80 k$ a month. The reserve is",
        "-> B: 20 k$ before spending; 80 k$ with CTO, at cost 8\n       | A cloud",
        "ReconcileGPT's reason\n    | B keeps every limit.",
        "Responsible: CTO; accountable: CTO; consulted: Cost.",
        " * CTO on B: spare node; cost 8, worth 21, needed",
        "CTO on A: vetoed",
        "CTO notes\n    | B is sound.",
        "CTO: 1 claim was struck out as false.",
        "Cost on C: no valid report",
        "conflict: COO favours A; CTO rules it out.",
        "Nothing is carried out if you approve",
        "Changed since the last proposal\n  option: A before, B now",
        f"Digest of the proposal: {show().proposal.digest}",
    ):
        assert words in text


def test_the_terminal_explains_its_words() -> None:
    response, printed = at_terminal("help", "?", "approve")
    assert response == ReviewResponse(decision="approve")
    assert printed.count(HELP) == 2


class Recording:
    """Notes what it is shown, and does not answer."""

    name = "ann"

    def __init__(self) -> None:
        self.shown: list[ReviewRequest] = []

    async def review(self, request: ReviewRequest) -> None:
        self.shown.append(request)


def test_a_person_is_shown_what_the_log_holds(tmp_path: Path) -> None:

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            recording, desk = Recording(), stand.services.gate
            genuine = await stand.request()
            await desk.ask(genuine.interrupt_id, recording)
            assert recording.shown == [genuine]
            assert desk.list_open() == [genuine]

    asyncio.run(run())


def test_changed_reports_in_the_state_change_neither_display_nor_digest(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            before = await stand.interrupt()
            state = (await stand.graph.aget_state(stand.config)).values
            silent = {role: {"text": "", "parsed": None} for role in state["reports"]}
            await stand.graph.aupdate_state(stand.config, {"reports": silent}, as_node="propose")
            await stand.go()
            after = await stand.interrupt()
            assert after.value["proposal"] == before.value["proposal"]
            assert after.value["digest"] == before.value["digest"]

    asyncio.run(run())
