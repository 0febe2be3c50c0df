"""The governed graph: every node alone, every route, and the picture in the documentation."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from governed_tables import HandClock
from langgraph.runtime import Runtime

from reliability.governed.cases import KEY, draw_cases
from roles.errors import UserError
from scenarios.company.optimum import part_of
from scenarios.execution import ActualEffect, measure_share
from scenarios.team import PlanGame, load_table
from scenarios.team.experts import best_report
from scenarios.team.offers import offers_on
from scenarios.team.playable import PlayableCase
from simulator.game import TeamGame
from simulator.governance.gate import MAX_REPLANS, Display, Gate, Reviewers, Standing
from simulator.governance.governed_graph import (
    MAX_REFUSALS,
    MAX_REVISIONS,
    Course,
    FullContext,
    FullState,
    after_commit,
    after_monitor,
    after_reconcile,
    after_replan,
    after_review,
    close,
    commit,
    describe_case,
    dispatch,
    intake,
    make_executor,
    monitor,
    open_full,
    open_full_case,
    propose,
    replan,
    review,
    write_renewed_brief,
)
from simulator.governance.log import DecisionLog
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes, read_plan
from simulator.governance.precedents import Precedent, Precedents, write_recollection
from simulator.governance.proposal import ReviewResponse
from simulator.governance.seals import NotApprovedError
from simulator.governance.store import open_store
from simulator.graph.nodes import make_after_vote, make_reconcile_node, make_report_node, make_vote_node
from simulator.graph.state import Reply, Step, Utterance, open_case

CASE = next(  # nobody needs a part of it, so that a plan may fund nothing
    case
    for case in draw_cases(60)
    if all(case.parts_of(seat, option)[0].keeps_limit for seat in case.seats for option in case.options)
)
SEATS = tuple(CASE.seats)
GAME = PlanGame(CASE, "short")
REPORTS = {seat: best_report(CASE, seat, "lean").model_dump_json() for seat in SEATS}
PARSED = {seat: GAME.read_report(seat, text) for seat, text in REPORTS.items()}
LABELS = [offer.label for offer in offers_on(load_table(PARSED), "A")]
PLANNED = offers_on(load_table(PARSED), "A")[0]
PLAN = {"option": "A", "fund": LABELS[:1], "escalate": False, "conflicts": [], "reason": "A is sound."}
RECONCILE = make_reconcile_node(SEATS, write_renewed_brief)
ROOT = Path(__file__).parent.parent.parent.parent


class Lines:
    """Agents that read out lines and note what they were asked."""

    def __init__(self, **lines: str) -> None:
        self.lines, self.asked = lines, dict[str, list[str]]()

    async def ask(self, step: Step, role: str, message: str, state: FullState) -> Reply:
        asked = self.asked.setdefault(role, [])
        asked.append(message)
        return Reply(text=self.lines.get(role, REPORTS.get(role, "")), number=len(asked), is_new=True)


def make_context(agents: Lines | None = None, **outcomes: Any) -> FullContext:
    """Services on a fresh store in memory."""
    log = DecisionLog(open_store(None)[0], HandClock(), key=KEY)
    reviewers = Reviewers(log)
    reviewers.register("ann")
    world = SimulatedOutcomes(CASE, **{"shock_share": 0.0, **outcomes})
    course = Course(world, lambda case: PlanGame(case, "short"), write_briefs)
    return FullContext(
        thread="t",
        agents=agents or Lines(),
        game=course.game,
        gate=Gate(log, reviewers),
        log=log,
        precedents=Precedents(log),
        horizon=0,
        outcomes=world,
        course=course,
        words=describe_case(CASE),
    )


def write_briefs(case: PlayableCase, game: TeamGame) -> dict[str, str]:
    return {seat: game.write_report_brief(seat) for seat in case.seats}


def make_state(**changed: Any) -> FullState:
    """The case after lean reports and a draft of A with one part, with some of it changed."""
    state = open_full_case(open_case(CASE, GAME, rounds=2))
    state["reports"] = {role: Utterance(text=REPORTS[role], parsed=PARSED[role]) for role in SEATS}
    state["decision"] = Utterance(text="", parsed=PLAN)
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


def rule(state: FullState, context: FullContext, response: ReviewResponse | None = None) -> FullState:
    """The state after a review that a person has answered."""
    display, given = context.stand(state).latest, response or ReviewResponse(decision="approve")
    context.gate.submit(display.interrupt_id, display.digest, given, "ann")
    return after(review, state, context)


def at_gate(**changed: Any) -> tuple[FullState, FullContext]:
    """The state and services of a case that waits for its first ruling."""
    context = make_context()
    return after(propose, make_state(**changed), context), context


def stood_at(*rulings: str, **marks: Any) -> FullContext:
    """Services of a case whose displays were ruled on like this, the last with these marks."""
    context = make_context()
    after(propose, make_state(), context)
    entry = context.gate.stand(context.thread).latest.entry
    standing = Standing(context.thread, [])
    for number, ruling in enumerate(rulings):
        display = Display(entry=entry, number=number, num_eyes=1)
        if ruling == "refused":
            display.refusal = "expired"
        elif ruling != "waiting":
            kind = {"approve": "approved", "edit": "edited", "reject": "rejected"}[ruling]
            body = {"to": "C" if ruling == "edit" else None, "feedback": "no"}
            display.answers.append(replace(entry, kind=kind, body=body))
        standing.displays.append(display)
    for name, value in marks.items():
        setattr(standing.latest, name, value)
    gate = SimpleNamespace(stand=lambda thread: standing)
    return replace(context, gate=cast(Gate, gate))


def votes(**said: str) -> dict[str, Utterance]:
    return {
        role: Utterance(text="", parsed={"vote": said.get(role, "accept"), "reason": ""}) for role in SEATS
    }


def test_intake_recalls_and_dispatch_hands_out_what_was_seen_of_the_company() -> None:
    context = make_context()
    assert run(intake, make_state(), context) == {"round": 0, "precedents": []}
    actual = ActualEffect(seat="coo", upgrade="contractor x", stated="9 days", actual="12 days", lost=50)
    precedent = Precedent(
        case="c",
        company=CASE.public.situation,
        option="A",
        status="completed",
        alerts=[],
        worth=9,
        promised=10,
        actuals=[actual],
    )
    other = Precedent(**{**precedent, "company": "another"})
    briefs = run(dispatch, make_state(precedents=[precedent, other]), context)["briefs"]
    plain = make_state()["briefs"]
    assert briefs["coo"] == f"{write_recollection([precedent], 'coo')}\n{plain['coo']}"
    assert {role: briefs[role] for role in SEATS if role != "coo"} == {
        role: plain[role] for role in SEATS if role != "coo"
    }


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
    assert agents.asked == {"coo": [GAME.write_report_brief("coo")]}


def test_reconcile_reads_reports_then_objections_then_news() -> None:
    draft = json.dumps({**PLAN, "option": "B", "fund": []})
    agents = Lines(reconcile=draft)
    context, fresh = make_context(agents), make_state(round=0)
    update = run(RECONCILE, fresh, context)
    assert agents.asked["reconcile"] == [GAME.write_decision_brief(PARSED)]
    assert (update["round"], update["decision"]["parsed"]["option"]) == (1, "B")
    run(RECONCILE, make_state(round=1, votes=votes(cost="object")), context)
    assert agents.asked["reconcile"][1].startswith("Objections cost")
    reject = ReviewResponse(decision="reject", feedback="too dear")
    run(RECONCILE, rule(after(propose, make_state(), context), context, reject), context)
    brief = GAME.write_decision_brief(PARSED, ["A"])
    assert agents.asked["reconcile"][2] == f"The reviewer rejects A. too dear\n{brief}"


def test_vote_asks_everybody_in_its_own_transcript() -> None:
    agents = Lines(cto='{"vote": "object"}', coo='{"vote": "accept"}', risk="hm", cost="{}")
    update = run(make_vote_node(SEATS), make_state(), make_context(agents))
    said = [update["votes"][role]["parsed"] for role in SEATS]
    assert [one and one["vote"] for one in said] == ["object", "accept", None, None]
    funded = {offer.seat for offer in offers_on(load_table(PARSED), "A") if offer.label in LABELS[:1]}
    assert agents.asked == {
        role: [f"Decision A {'with' if role in funded else 'without'} your part. Vote."] for role in SEATS
    }


@pytest.mark.parametrize(
    ("changed", "num_replans", "route"),
    [
        ({}, 0, "propose"),  # routine
        ({"decision": None}, 0, "propose"),  # goes to the reviewer
        ({}, 3, "vote"),  # plans that failed make it contested
        ({"rounds": 0}, 3, "propose"),
        ({"question": Utterance(text="", parsed={"ask": {}})}, 0, "answer"),
    ],
)
def test_route_after_reconcile_is_by_decision_type(
    changed: dict[str, Any], num_replans: int, route: str
) -> None:
    context = stood_at(*["approve"] * num_replans)
    for display in context.gate.stand("t").displays:
        display.is_replanned = True
    state = make_state(**changed, shown=num_replans)
    assert asyncio.run(after_reconcile(state, runtime=Runtime(context=context))) == route


def test_route_after_a_replan_is_to_the_seats_whose_facts_changed() -> None:
    for changed, route in ((["coo", "cost"], ["coo", "cost"]), ([], ["reconcile"])):
        context = stood_at("approve", observed={"changed": changed})
        assert asyncio.run(after_replan(make_state(shown=1), runtime=Runtime(context=context))) == route


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
    ("rulings", "route"),
    [
        (["approve"], "commit"),
        (["edit"], "propose"),
        (["reject"], "reconcile"),
        (["refused"], "propose"),
        (["refused"] * MAX_REFUSALS, "close"),
        (["reject"] * MAX_REVISIONS, "reconcile"),
        (["reject"] * (MAX_REVISIONS + 1), "close"),
        (["waiting"], "review"),
    ],
)
def test_route_after_review(rulings: list[str], route: str) -> None:
    runtime = Runtime(context=stood_at(*rulings, "waiting"))  # another process is one display ahead
    assert asyncio.run(after_review(make_state(shown=len(rulings)), runtime=runtime)) == route


def test_route_after_commit_and_monitor() -> None:
    def route(node: Any, context: FullContext) -> Any:
        return asyncio.run(node(make_state(shown=1), runtime=Runtime(context=context)))

    assert route(after_commit, stood_at("refused")) == ["propose"]
    assert route(after_commit, stood_at("approve", is_committed=True)) == [
        f"execute_{seat}" for seat in SEATS
    ]
    state, handed = at_gate(decision=None)
    after(commit, rule(state, handed), handed)
    assert route(after_commit, handed) == ["close"]
    alert = {"alerts": ["cto"]}
    assert route(after_monitor, stood_at("approve", observed=alert)) == "replan"
    assert route(after_monitor, stood_at("approve", observed=alert, is_replanned=True)) == "replan"  # again
    assert route(after_monitor, stood_at("approve", observed={"alerts": []})) == "close"
    last = stood_at("approve", observed=alert)
    entry = last.gate.stand("t").latest.entry
    entry.body["request"]["proposal"]["attempt"] = MAX_REPLANS
    assert route(after_monitor, last) == "close"


def test_the_way_through_the_gate_node_by_node() -> None:
    state, context = at_gate()
    assert context.stand(state).latest.proposal.decision_type == "routine"
    state = rule(state, context)
    assert (context.stand(state).latest.ruling, state["shown"]) == ("approve", 1)
    with pytest.raises(NotApprovedError, match="never committed"):
        run(make_executor("cto"), state, context)
    state = after(commit, state, context)
    assert context.stand(state).latest.is_committed
    for role in SEATS:
        assert run(make_executor(role), state, context) == {}
    state = after(monitor, state, context)
    display = context.stand(state).latest
    assert display.observed is not None
    assert display.observed["worth"] > 0
    carried = read_plan(display.proposal)
    assert (carried.option, carried.funded) == ("A", {PLANNED.seat: PLANNED.choice})
    assert run(close, state, context)["status"] in ("completed", "completed_with_alerts")
    kinds = [entry.kind for entry in context.log.entries("t")]
    assert kinds == ["requested", "approved", "committed", *["executed"] * 4, "observed", "closed"]


def test_an_edit_is_a_new_proposal_and_a_rejection_goes_back() -> None:
    state, edit = at_gate()
    state = rule(state, edit, ReviewResponse(decision="edit", option="C"))
    standing = edit.stand(state)
    assert (standing.edited, standing.revision) == ("C", 1)
    assert edit.stand(after(propose, state, edit)).latest.proposal.option == "C"
    state, context = at_gate()
    state = rule(state, context, ReviewResponse(decision="reject", feedback="too dear"))
    assert state["round"] == 0
    assert context.stand(state).ruled_out == {"A": "the reviewer rejected it"}


def test_an_edit_to_no_option_is_not_taken() -> None:
    state, context = at_gate()
    with pytest.raises(NotApprovedError, match="cannot take the place") as refused:
        rule(state, context, ReviewResponse(decision="edit", option="Z"))
    assert refused.value.reason == "unknown_option"


def test_an_edit_to_an_option_that_breaks_a_limit_is_not_taken() -> None:
    veto = {**(PARSED["cto"] or {}), "veto": ["C"]}
    reports = {**make_state()["reports"], "cto": Utterance(text="", parsed=veto)}
    state, context = at_gate(reports=reports)
    with pytest.raises(NotApprovedError) as refused:
        rule(state, context, ReviewResponse(decision="edit", option="C"))
    assert refused.value.reason == "cannot_be_run"


def carry_out(context: FullContext) -> FullState:
    """The state once the plan was approved, carried out and observed."""
    state = rule(after(propose, make_state(), context), context)
    state = after(commit, state, context)
    for role in SEATS:
        run(make_executor(role), state, context)
    return after(monitor, state, context)


def test_monitor_holds_what_the_log_says_against_floors_and_replan_tells() -> None:
    context = next(
        context
        for seed in range(50)
        if (context := make_context(seed=seed, shock_share=1.0)).outcomes.observe(
            [], CarriedPlan(option="A", funded={}, costs={}, worths={})
        )["kpis"]["coo"]
        < 100
    )
    state = carry_out(context)
    told: Any = context.stand(state).latest.observed
    assert "coo" in told["alerts"]
    update = run(replan, state, context)
    state["options"] = update["options"]
    assert context.stand(state).attempt == 1
    agents = context.agents
    assert isinstance(agents, Lines)
    run(RECONCILE, {**state, "round": 0}, context)
    heard = agents.asked["reconcile"][0]
    assert heard.startswith("Execution of A did not hold: ")
    assert f"coo {told['kpis']['coo']} percent of its limit, {told['lost']['coo']} k$ lost" in heard
    assert set(told["changed"]) == {"coo", PLANNED.seat}
    assert context.course.case.public.budget == told["left"]
    assert told["left"] == CASE.public.budget - PLANNED.cost + context.outcomes.reserve - cut_of(told)
    assert update["briefs"]["coo"].startswith(told["shocks"][0])
    assert update["briefs"]["coo"].endswith(context.game.write_report_brief("coo"))
    others = set(SEATS) - {"coo", PLANNED.seat}
    assert {update["briefs"][role] == state["briefs"][role] for role in others} == {True}


def cut_of(told: Observation) -> int:
    cuts = [shock for shock in told["shocks"] if shock.startswith("The reserve is cut by ")]
    return sum(int(shock.split()[5]) for shock in cuts)


def test_nothing_is_monitored_or_planned_anew_without_an_observation() -> None:
    state, context = at_gate()
    state = after(commit, rule(state, context), context)
    for node, reason in ((monitor, "not_executed"), (replan, "no_alert")):
        with pytest.raises(NotApprovedError) as refused:
            run(node, state, context)
        assert refused.value.reason == reason


def test_close_asks_the_gate_and_not_the_state() -> None:
    state, context = at_gate(status="completed")
    with pytest.raises(NotApprovedError, match="waits for a ruling"):
        run(close, state, context)
    state = rule(state, context, ReviewResponse(decision="reject"))
    assert run(close, state, context)["status"] == "not_approved"


def test_outcomes_are_seeded_and_calm_ones_are_as_promised() -> None:
    plan = CarriedPlan(option="A", funded={PLANNED.seat: PLANNED.choice}, costs={}, worths={})
    calm = SimulatedOutcomes(CASE, shock_share=0.0).observe([], plan)
    hard = SimulatedOutcomes(CASE, shock_share=1.0, seed=3).observe([], plan)
    assert hard == SimulatedOutcomes(CASE, shock_share=1.0, seed=3).observe([], plan)
    assert calm["shocks"] == []
    assert hard["shocks"] != []
    assert calm["worth"] == calm["promised"] == CASE.public.base["A"] + PLANNED.worth
    assert calm["cost"] == PLANNED.cost
    for role in SEATS:
        part = part_of(CASE.case, role, "A", plan.funded.get(role, ()))
        assert calm["kpis"][role] == measure_share(CASE.case, role, part.figures)


def test_the_documented_picture_is_the_graph() -> None:
    text = (ROOT / "docs" / "explanation" / "governance.md").read_text()
    assert f"```mermaid\n{open_full().get_graph().draw_mermaid().strip()}\n```" in text
