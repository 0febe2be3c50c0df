"""The governed graph: every node alone, every route, and the picture in the documentation."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM, HandClock
from langgraph.runtime import Runtime

from emads.reliability.governed.cases import KEY, draw_cases
from roles.errors import UserError
from scenarios.team import FlagGame
from simulator.governance.case_words import describe_case
from simulator.governance.context import FullContext, Place
from simulator.governance.gate.approvals import NotApprovedError, Proposal, ReviewResponse, issue_approval
from simulator.governance.gate.eligibility import Reviewers
from simulator.governance.gate.gate import Gate
from simulator.governance.gate.requests import Requests
from simulator.governance.governed_graph import (
    MAX_REFUSALS,
    MAX_REPLANS,
    MAX_REVISIONS,
    after_monitor,
    after_reconcile,
    after_review,
    full_graph_mermaid,
    make_after_commit,
)
from simulator.governance.nodes.execution import close, make_executor, monitor, outcome, replan
from simulator.governance.nodes.opening import assign_duty, dispatch, intake, write_renewed_brief
from simulator.governance.nodes.review import commit, propose, review
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.precedents import Precedent, PrecedentStore
from simulator.governance.state import FullState, open_full_case
from simulator.governance.store.database import open_store
from simulator.governance.store.decision_log import DecisionLog
from simulator.governance.store.effects import EffectsLedger
from simulator.graph.context import Reply, Step
from simulator.graph.nodes import make_after_vote, make_reconcile_node, make_report_node, make_vote_node
from simulator.graph.state import Utterance

CASE = draw_cases(1)[0]
SEATS = tuple(CASE.seats)
RECONCILE = make_reconcile_node(SEATS, write_renewed_brief)
ROOT = Path(__file__).parent.parent.parent.parent


class Lines:
    """Agents that read out lines and note what they were asked."""

    def __init__(self, **lines: str) -> None:
        self.lines, self.asked = lines, dict[str, list[str]]()

    async def ask(self, step: Step, role: str, message: str, state: FullState) -> Reply:
        asked = self.asked[role] = [*state["asked"].get(role, []), message]
        text = self.lines.get(role, '{"pick": "A", "flag": 1, "veto": []}')
        return Reply(text=text, number=len(asked), is_new=True, asked=asked)


def make_context(agents: Lines | None = None, answer: Any = None) -> FullContext:
    """Services on a fresh store in memory; the reviewer's answer is given."""
    connection, clock = open_store(None), HandClock()
    log = DecisionLog(connection, clock, key=KEY)
    return FullContext(
        thread="t",
        agents=agents or Lines(),
        game=FlagGame.of(CASE),
        gate=Gate(
            connection,
            key=KEY,
            log=log,
            requests=Requests(connection, key=KEY, log=log),
            reviewers=Reviewers(connection, key=KEY, log=log),
        ),
        ledger=EffectsLedger(connection),
        log=log,
        precedents=PrecedentStore(connection),
        horizon=0,
        outcomes=CALM(CASE),
        words=describe_case(CASE),
        locate=lambda: Place(thread="t", superstep=7, interrupt_id="i"),
        ask=lambda request: answer(request) if callable(answer) else answer,
    )


def make_state(**changed: Any) -> FullState:
    """The case after unanimous reports for A and a draft of A, with some of it changed."""
    report = {"text": "", "parsed": {"pick": "A", "flag": 1, "veto": []}}
    state = open_full_case(CASE, rounds=2)
    state["reports"] = {role: Utterance(text="", parsed=report["parsed"]) for role in SEATS}
    state["decision"] = Utterance(text="", parsed={"option": "A", "escalate": False})
    state["round"] = 1
    state.update(changed)  # type: ignore[typeddict-item]
    return state


def run(node: Any, state: FullState, context: FullContext | None = None) -> dict[str, Any]:
    update: dict[str, Any] = asyncio.run(node(state, runtime=Runtime(context=context or make_context())))
    return update


def after(node: Any, state: FullState, context: FullContext | None = None) -> FullState:
    """The state with the node's update laid over it."""
    state.update(run(node, state, context))  # type: ignore[typeddict-item]
    return state


def sign(request: dict[str, Any], response: ReviewResponse | None = None) -> dict[str, Any]:
    return issue_approval(
        response or ReviewResponse(decision="approve"),
        key=KEY,
        thread=request["thread"],
        interrupt_id=request["interrupt_id"],
        proposal_digest=request["digest"],
        reviewer="ann",
        now_s=HandClock().now_s,
        lifetime_s=60,
        nonce=("0" * 31) + str(request["proposal"]["revision"]),
    ).model_dump()


def votes(**said: str) -> dict[str, Utterance]:
    return {role: Utterance(text="", parsed=said.get(role, "accept")) for role in SEATS}


def test_intake_recalls_and_dispatch_assigns() -> None:
    assert run(intake, make_state()) == {"round": 0, "precedents": []}
    duty = run(dispatch, make_state())["duty"]
    assert duty == {
        "responsible": list(SEATS),
        "accountable": "cto",
        "consulted": ["coo", "risk", "cost"],
        "informed": ["reviewer"],
    }


def test_the_seat_that_fell_most_often_is_accountable() -> None:
    fallen = [Precedent(case="c", option="A", status="s", alerts=alerts) for alerts in (["risk"], ["risk"])]
    fallen.append(Precedent(case="c", option="A", status="s", alerts=["cost", "gone"]))
    assert assign_duty(list(SEATS), fallen)["accountable"] == "risk"


@pytest.mark.parametrize(
    "wrong",
    [
        {"options": []},
        {"options": ["A", "A"]},
        {"options": ["A", "none"]},
        {"briefs": {}},
        {"briefs": {"cto": " "}},
        {"briefs": {"cto": "x" * 20_001}},
    ],
)
def test_intake_refuses_what_cannot_be_played(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=CASE.key):
        run(intake, make_state(**wrong))


def test_a_specialist_reads_its_brief_only() -> None:
    agents = Lines(coo="B, surely")
    update = run(make_report_node("coo"), make_state(), make_context(agents))
    assert update["reports"] == {"coo": {"text": "B, surely", "parsed": None}}
    assert agents.asked == {"coo": [CASE.seats["coo"].brief]}


def test_reconcile_reads_reports_then_objections_then_news() -> None:
    agents = Lines(reconcile='{"option": "B", "escalate": false}')
    context, fresh = make_context(agents), make_state(round=0)
    update = run(RECONCILE, fresh, context)
    assert agents.asked["reconcile"][0].startswith("Options A B C. Vetoed none.\ncto A 1")
    assert (update["round"], update["decision"]["parsed"]["option"]) == (1, "B")
    run(RECONCILE, make_state(round=1, votes=votes(cost="object"), asked=update["asked"]), context)
    assert agents.asked["reconcile"][1:] == ["Objections cost. Decide again."]
    news = make_state(round=0, redraft_reason="Execution of A failed: cost 84.", ruled_out={"A": "cost 84"})
    run(RECONCILE, news, context)
    assert agents.asked["reconcile"][0].startswith(
        "Execution of A failed: cost 84.\nOptions A B C. Vetoed A.\ncto A 1 out"
    )


def test_vote_asks_everybody_in_its_own_transcript() -> None:
    agents = Lines(cto='{"vote": "object"}', coo='{"vote": "accept"}', risk="hm", cost="{}")
    asked = {role: ["brief"] for role in SEATS}
    update = run(make_vote_node(SEATS), make_state(asked=asked), make_context(agents))
    assert [update["votes"][role]["parsed"] for role in SEATS] == ["object", "accept", None, None]
    assert update["asked"] == {role: ["brief", "Decision A. Vote."] for role in SEATS}


@pytest.mark.parametrize(
    ("changed", "route"),
    [
        ({}, "propose"),  # routine
        ({"decision": None}, "propose"),  # goes to the reviewer
        ({"decision": Utterance(text="", parsed={"option": "B", "escalate": False})}, "vote"),
        ({"decision": Utterance(text="", parsed={"option": "B", "escalate": False}), "rounds": 0}, "propose"),
    ],
)
def test_route_after_reconcile_is_by_decision_type(changed: dict[str, Any], route: str) -> None:
    assert asyncio.run(after_reconcile(make_state(**changed))) == route


@pytest.mark.parametrize(
    ("changed", "route"),
    [
        ({"votes": votes()}, "propose"),
        ({"votes": votes(cost="object")}, "reconcile"),
        ({"votes": votes(cost="object"), "round": 2}, "propose"),
    ],
)
def test_route_after_vote(changed: dict[str, Any], route: str) -> None:
    assert asyncio.run(make_after_vote("propose")(make_state(**changed))) == route


@pytest.mark.parametrize(
    ("changed", "route"),
    [
        ({"ruling": {"ruling": "approve"}}, "commit"),
        ({"ruling": {"ruling": "edit"}}, "propose"),
        ({"ruling": {"ruling": "reject"}}, "reconcile"),
        ({"ruling": {"ruling": "refused"}, "refusals": 1}, "review"),
        ({"ruling": {"ruling": "refused"}, "refusals": MAX_REFUSALS}, "close"),
        ({"ruling": {"ruling": "reject"}, "revision": MAX_REVISIONS + 1}, "close"),
        ({"ruling": None}, "review"),
        ({"ruling": {"approved": True}}, "review"),
    ],
)
def test_route_after_review(changed: dict[str, Any], route: str) -> None:
    assert asyncio.run(after_review(make_state(**changed))) == route


def test_route_after_commit_and_monitor() -> None:
    after_commit = make_after_commit(SEATS)
    planned = after(propose, make_state())
    assert asyncio.run(after_commit(planned)) == ["review"]
    planned["committed"] = "d"
    assert asyncio.run(after_commit(planned)) == [f"execute_{role}" for role in SEATS]
    handed = after(propose, make_state(decision=None, committed=""))
    handed["committed"] = "d"
    assert asyncio.run(after_commit(handed)) == ["close"]
    assert asyncio.run(after_monitor(make_state(alerts=["cto"]))) == "replan"
    assert asyncio.run(after_monitor(make_state(alerts=["cto"], attempt=MAX_REPLANS))) == "close"
    assert asyncio.run(after_monitor(make_state())) == "close"


def test_the_way_through_the_gate_node_by_node() -> None:
    context = make_context(answer=sign)
    state = after(propose, make_state())
    assert Proposal.model_validate(state["proposal"]).decision_type == "routine"
    state = after(review, state, context)
    assert state["ruling"] is not None
    assert state["ruling"]["ruling"] == "approve"
    with pytest.raises(NotApprovedError, match="never committed"):
        run(make_executor("cto"), state, context)
    state = after(commit, state, context)
    assert state["committed"] == Proposal.model_validate(state["proposal"]).digest
    for role in SEATS:
        assert run(make_executor(role), state, context) == {"delivered": {role: state["committed"]}}
    state = after(outcome, state, context)
    state = after(monitor, state, context)
    assert state["history"][0]["option"] == "A"
    assert run(close, state, context)["status"] in ("completed", "completed_with_alerts")
    kinds = [entry.kind for entry in context.log.entries()]
    assert kinds == ["requested", "committed", *["executed"] * 4, "observed", "closed"]


def test_an_edit_is_a_new_proposal_and_a_rejection_goes_back() -> None:
    edit = make_context(answer=lambda request: sign(request, ReviewResponse(decision="edit", option="C")))
    state = after(review, after(propose, make_state()), edit)
    assert (state["edited"], state["revision"]) == ("C", 1)
    assert run(propose, state)["proposal"]["option"] == "C"
    no = ReviewResponse(decision="reject", feedback="too dear")
    state = after(
        review, after(propose, make_state()), make_context(answer=lambda request: sign(request, no))
    )
    assert (state["round"], state["redraft_reason"]) == (0, "The reviewer rejects A. too dear")
    assert state["ruled_out"] == {"A": "the reviewer rejected it"}


def test_an_edit_to_no_option_does_not_count() -> None:
    odd = make_context(answer=lambda request: sign(request, ReviewResponse(decision="edit", option="Z")))
    state = after(review, after(propose, make_state()), odd)
    assert (state["refusal"], state["refusals"], state["edited"]) == ("unknown_option", 1, None)


def test_an_answer_that_does_not_count_says_why() -> None:
    state = after(review, after(propose, make_state()), make_context(answer="false"))
    assert (state["refusal"], state["refusals"]) == ("malformed", 1)


def test_monitor_holds_kpis_against_floors_and_replan_tells() -> None:
    state = after(propose, make_state())
    observation = {"kpis": {"cto": 100, "coo": 99, "risk": 500}, "shock": "outage"}
    state["observation"] = observation  # type: ignore[typeddict-item]
    state = after(monitor, state)
    assert state["alerts"] == ["coo", "cost"]
    update = run(replan, state)
    assert update["attempt"] == 1
    assert update["redraft_reason"] == "Execution of A failed: coo 99 cost 0."
    assert update["ruled_out"] == {"A": "execution broke it (coo 99 cost 0 percent)"}


def test_close_asks_the_gate_and_not_the_state() -> None:
    state = after(propose, make_state(status="completed", committed="d"))
    assert run(close, state)["status"] == "not_approved"


def test_outcomes_are_seeded_and_hit_one_seat() -> None:
    parts = Proposal.model_validate(after(propose, make_state())["proposal"]).parts
    calm = SimulatedOutcomes(CASE, shock_share=0.0).observe("A", parts)
    hard = SimulatedOutcomes(CASE, shock_share=1.0, seed=3).observe("A", parts)
    assert hard == SimulatedOutcomes(CASE, shock_share=1.0, seed=3).observe("A", parts)
    assert calm["shock"] == ""
    assert hard["shock"] != ""
    assert sum(hard["kpis"][role] < calm["kpis"][role] for role in SEATS) <= 1
    for role, seat in CASE.seats.items():
        assert calm["kpis"][role] == min(999, 100 * seat.facts["utilities"]["A"] // seat.facts["limit"])


def test_the_documented_picture_is_the_graph() -> None:
    text = (ROOT / "docs" / "explanation" / "governance.md").read_text()
    assert f"```mermaid\n{full_graph_mermaid().strip()}\n```" in text
