"""The governed graph: from the case over the human gate to execution and re-plan; its state and nodes.

intake -> dispatch -> specialists -> reconcile (-> answer) -> (vote) -> propose -> review -> commit ->
executors -> monitor -> close, or re-plan: seats whose facts changed report again, then reconcile.
LangGraph is the road, not the guard: see `gate`. The state says how many displays this play has come past;
what was ruled and done of them is asked of the gate, each time. What a node does is an entry of the log,
written once: a play that starts anew meets what was done and does nothing twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from roles.team import SPECIALISTS, Decision
from scenarios.team.offers import CheckedReport, find_part, load_table
from scenarios.team.playable import PlayableCase, PublicCase
from scenarios.written.written_case import FreeCase
from simulator.game import MakeGame, TeamGame
from simulator.governance.gate import MAX_REPLANS, Display, Gate, Standing
from simulator.governance.log import DecisionLog
from simulator.governance.outcomes import CarriedPlan, Outcomes, read_plan
from simulator.governance.precedents import Precedent, Precedents, list_features, write_recollection
from simulator.governance.proposal import CaseWords, OfferLine, PlanPart, Proposal, ReportLine
from simulator.governance.resolution import Resolution, assign_duty, decide_for, make_parts, resolve
from simulator.governance.seals import refuse
from simulator.graph import nodes as team_nodes
from simulator.graph.state import EpisodeContext, TeamState, Update, list_objectors, list_parsed

WriteBriefs = Callable[[PlayableCase, TeamGame], dict[str, str]]
MAX_REVISIONS, MAX_REFUSALS = 5, 5
COMPARED = ("option", "decision_type", "risk_score", "cost", "worth", "budget", "accountable")


class FullState(TeamState):
    """Everything that the governed graph carries; `round` counts drafts since the case or the re-plan."""

    precedents: list[Precedent]
    shown: int  # displays of proposals that this play has come to
    status: str


def open_full_case(opened: TeamState) -> FullState:
    """Return the graph's first state: what the seats may read, nothing else."""
    return FullState(**opened, precedents=[], shown=0, status="open")


class Course:
    """The case and game of a thread as they stand, after the plans that were carried out and planned anew."""

    def __init__(self, outcomes: Outcomes, make_game: MakeGame, write_briefs: WriteBriefs) -> None:
        """`write_briefs` writes what the seats read first of a case."""
        self._outcomes, self._make_game, self._write_briefs = outcomes, make_game, write_briefs
        self._known: dict[int, tuple[PlayableCase, TeamGame]] = {}  # by number of plans
        self.plans: Sequence[CarriedPlan] = ()

    @property
    def case(self) -> PlayableCase:
        """The case as it stands now."""
        return self._stand(self.plans)[0]

    @property
    def game(self) -> TeamGame:
        """The game on the case as it stands now, whenever it is asked."""
        return cast(TeamGame, _CurrentGame(lambda: self._stand(self.plans)[1]))

    @cached_property
    def features(self) -> frozenset[str]:
        """The features of the case as it was before any plan, by which past cases are recalled."""
        return list_features(self.write_briefs(()))

    def write_briefs(self, plans: Sequence[CarriedPlan]) -> dict[str, str]:
        """Write what the seats read of the case after these plans."""
        return self._write_briefs(*self._stand(plans))

    def _stand(self, plans: Sequence[CarriedPlan]) -> tuple[PlayableCase, TeamGame]:
        if len(plans) not in self._known:
            case = self._outcomes.continue_case(plans)
            self._known[len(plans)] = case, self._make_game(case)
        return self._known[len(plans)]


class _CurrentGame:
    """A game that is looked up anew at every use."""

    def __init__(self, find: Callable[[], TeamGame]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullContext(EpisodeContext):
    """Services for the nodes of the governed graph. Truth is behind `outcomes`, the key behind `log`.

    `game` is the one of `course`: after a re-plan that of the case as it stands then.
    """

    thread: str
    gate: Gate
    log: DecisionLog
    precedents: Precedents
    horizon: int  # closed cases that this thread may recall
    outcomes: Outcomes
    course: Course
    words: CaseWords

    def recall(self) -> list[Precedent]:
        """Recall closed cases of the same company, and similar ones."""
        return self.precedents.recall(self.course.features, self.horizon, company=self.words.context)

    def stand(self, state: FullState) -> Standing:
        """Return how the case stood, by its log, before any display that this play has not come to."""
        return self.gate.stand(self.thread).at(state["shown"])


def list_plans(displays: Sequence[Display]) -> list[CarriedPlan]:
    """Return the plans of these displays that were carried out and then planned anew."""
    return [read_plan(display.proposal) for display in displays if display.is_replanned]


async def intake(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Check the case as `simulator.graph.nodes.intake` does, and recall past ones."""
    update = await team_nodes.intake(state, runtime=runtime)
    return {**update, "precedents": runtime.context.recall()}


async def dispatch(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hand out the briefs: with each what closed cases of the same company showed of the seat's upgrades."""
    company = runtime.context.words.context
    own = [one for one in state["precedents"] if company and one["company"] == company]
    told = {role: [write_recollection(own, role), brief] for role, brief in state["briefs"].items()}
    return {"briefs": {role: "\n".join(filter(None, texts)) for role, texts in told.items()}}


def write_renewed_brief(context: FullContext, state: FullState, reports: Mapping[str, Any]) -> str:
    """Write the decision brief, after the reason of a new draft where there is one."""
    standing = context.stand(state)
    brief = context.game.write_decision_brief(reports, standing.ruled_out)
    reason = "".join(map(_tell_reason, standing.displays[-1:]))
    return f"{reason}\n{brief}" if reason else brief


def _tell_reason(last: Display) -> str:
    """Write why ReconcileGPT drafts anew after this display."""
    option = last.entry.body["option"]
    if last.is_replanned and last.observed is not None:
        kpis, lost = last.observed["kpis"], last.observed["lost"]
        figures = "; ".join(
            f"{role} {kpis.get(role, 0)} percent of its limit, {lost.get(role, 0)} k$ lost"
            for role in last.observed["alerts"]
        )
        return f"Execution of {option} did not hold: {figures}. Plan again."
    feedback = last.answer.body["feedback"] if last.answer is not None else ""
    return f"The reviewer rejects {option}. {feedback}".strip()


def judge(state: FullState, public: PublicCase, standing: Standing) -> Resolution:
    """Judge the state's draft, or the reviewer's own option, in plain code."""
    table, edited, ruled_out = _read_table(state), standing.edited, standing.ruled_out
    if edited is not None:
        draft, objectors = decide_for(public, table, edited, ruled_out), list[str]()
    else:
        draft, objectors = _read_draft(state), list_objectors(state)
    return resolve(
        public, table, draft, objectors=objectors, ruled_out=ruled_out, num_failures=standing.attempt
    )


def _read_draft(state: FullState) -> Decision | None:
    """Read ReconcileGPT's last draft; None where there is none or it is malformed."""
    parsed = state["decision"] and state["decision"]["parsed"]
    return Decision.model_validate(parsed) if parsed else None


def _read_table(state: FullState) -> dict[str, CheckedReport | None]:
    """Read the checked reports by seat; None for a malformed one."""
    parsed = list_parsed(state["reports"])
    return load_table({role: parsed[role] for role in state["briefs"]})


async def propose(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Make the proposal and display it: all that is shown and carried out, of an edit the reviewer's option.

    What was displayed already is not displayed again.

    Raises:
        NotApprovedError: "tampered": the state's reports offer what the case does not have; or "closed".
    """
    context = runtime.context
    now = context.gate.stand(context.thread)
    standing = now.at(state["shown"])
    number = len(standing.displays)
    if number == len(now.displays):
        context.gate.show(_make_proposal(state, context, standing), number)
    return {"shown": number + 1}


def _make_proposal(state: FullState, context: FullContext, standing: Standing) -> Proposal:
    if standing.displays and standing.latest.ruling == "refused":
        return standing.latest.proposal  # once more
    context.course.plans = list_plans(standing.displays)
    case = context.course.case
    resolution = judge(state, case.public, standing)
    parts = make_parts(list(case.seats), resolution)
    for part in parts:
        if part.choice and not _is_true(part, resolution.option, case):
            refuse("tampered", f"{part.role} can buy no part of this cost and worth on {resolution.option}")
    precedents = context.recall()
    responsible, accountable = assign_duty(list(case.seats), parts, precedents)
    draft = _read_draft(state)
    proposal = Proposal(
        thread=context.thread,
        case=case.key,
        attempt=standing.attempt,
        revision=standing.revision,
        option=resolution.option,
        reason="" if draft is None or standing.edited is not None else draft.reason,
        decision_type=resolution.decision_type,
        risk_score=resolution.risk_score,
        options=resolution.options,
        budget=case.public.budget,
        reserve=0 if standing.attempt else context.outcomes.reserve,
        cost=resolution.cost,
        worth=resolution.worth,
        conflicts=resolution.conflicts,
        conditions=resolution.conditions,
        responsible=responsible,
        accountable=accountable,
        consulted=[seat for seat in case.seats if seat not in responsible],
        parts=parts,
        precedents=[precedent["case"] for precedent in precedents],
        words=context.words.model_copy(update={"context": case.public.situation or context.words.context}),
        reports={
            role: None if report is None else _spell_report(report, resolution)
            for role, report in _read_table(state).items()
        },
        changes=[],
    )
    if not standing.displays:
        return proposal
    return proposal.model_copy(update={"changes": list_changes(standing.latest.proposal, proposal)})


def _is_true(part: PlanPart, option: str, case: PlayableCase) -> bool:
    """Return whether the case knows this part with its figures; what nobody can tell is taken as it is."""
    if part.role not in case.seats or option not in case.options:
        return False
    if case.parts_of(part.role, option) is None:
        return True
    found = find_part(case, part.role, option, part.choice)
    return found is not None and (found.cost, found.worth) == (part.cost, part.worth)


def _spell_report(report: CheckedReport, resolution: Resolution) -> ReportLine:
    return ReportLine(
        offers=[
            OfferLine(
                option=offer.option,
                part=list(offer.choice),
                cost=offer.cost,
                worth=offer.worth,
                is_funded=offer in resolution.funded,
            )
            for offer in report.offers
        ],
        needs=list(report.needs),
        veto=list(report.veto),
        note=report.note,
        num_false_claims=len(report.false_claims),
    )


def describe_case(case: PlayableCase) -> CaseWords:
    """Describe a case in its own words."""
    if isinstance(case, FreeCase):
        return CaseWords(title=case.title, context=case.context, meanings=case.meanings)
    public = case.public
    return CaseWords(
        title=f"{public.sector.capitalize()} case: which option does the company take, and what is funded?",
        context=public.situation,
        meanings={letter: option.name for letter, option in public.options.items()},
    )


def list_changes(before: Proposal, now: Proposal) -> list[str]:
    """List in words what differs from the proposal before."""
    changes = [
        f"{name.replace('_', ' ')}: {getattr(before, name)} before, {getattr(now, name)} now"
        for name in COMPARED
        if getattr(before, name) != getattr(now, name)
    ]
    actions = {part.role: part.action for part in before.parts}
    changes += [
        f"{part.role}: {actions.get(part.role, 'nothing')} before, {part.action} now"
        for part in now.parts
        if actions.get(part.role) != part.action
    ]
    changes += [f"new condition: {one}" for one in now.conditions if one not in before.conditions]
    changes += [f"condition dropped: {one}" for one in before.conditions if one not in now.conditions]
    return changes


async def review(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Wait until the log holds a ruling on what was displayed; only that has an effect."""
    display = runtime.context.stand(state).latest
    if display.ruling == "waiting":
        interrupt(display.request.model_dump())
        display = runtime.context.stand(state).latest
    return {"round": 0} if display.ruling == "reject" else {}


async def commit(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Let the gate verify the approval anew: from here on exactly this proposal may be carried out."""
    context = runtime.context
    context.gate.commit(context.thread, context.stand(state).latest.number)
    return {}


def make_executor(role: str) -> team_nodes.Node[FullState]:
    """Make the node in which one seat carries out its part; without a commit the gate refuses it."""

    async def execute(state: FullState, *, runtime: Runtime[Any]) -> Update:
        context: FullContext = runtime.context
        context.gate.deliver(context.thread, context.stand(state).latest.number, role)
        return {}

    return execute


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Observe what the plan in force brought, and hold every KPI against its floor."""
    context = runtime.context
    standing = context.stand(state)
    display = standing.latest

    def look() -> dict[str, Any]:
        before, proposal = list_plans(standing.displays[:-1]), display.proposal
        try:
            observation = context.outcomes.observe(before, read_plan(proposal))
        except KeyError as error:
            refuse("tampered", f"the committed plan cannot be carried out: {error.args[0]}")
        return {"alerts": list_alerts(proposal, observation), **observation}

    context.gate.observe(context.thread, display.number, look)
    return {}


def list_alerts(proposal: Proposal, observation: Mapping[str, Any]) -> list[str]:
    """List the seats whose KPI is under its floor, that lost too much, or of which nothing was observed."""
    kpis, lost = observation.get("kpis", {}), observation.get("lost", {})
    return [
        part.role
        for part in proposal.parts
        if kpis.get(part.role, -1) < part.kpi_floor or lost.get(part.role, 0) > part.most_lost
    ]


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again: with what is left of the money, and new briefs for seats whose facts changed."""
    context = runtime.context
    context.gate.replan(context.thread, context.stand(state).latest.number)
    standing = context.stand(state)
    context.course.plans = list_plans(standing.displays)
    written = context.course.write_briefs(context.course.plans)
    observed = standing.latest.observed
    assert observed is not None
    briefs = {role: _write_news(observed, role, written[role]) for role in observed["changed"]}
    return {
        "round": 0,
        "question": None,
        "answered": [],
        "votes": {},
        "briefs": {**state["briefs"], **briefs},
        "options": list(context.course.case.options),
    }


def _write_news(observed: Mapping[str, Any], role: str, brief: str) -> str:
    """Write what a seat reports from again: what was measured, then the case as it stands."""
    actuals = [one for one in observed["actuals"] if one["seat"] == role and one["lost"]]
    lines = [
        *observed["shocks"],
        *(f"{one['upgrade']} brought {one['actual']}, not {one['stated']}." for one in actuals),
        f"Measured in your field: {observed['figures'].get(role, 'nothing')}. Report again.",
    ]
    return "\n".join([*lines, brief])


async def close(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """End the case: its status comes from the gate, not from the state; it becomes a precedent."""
    context = runtime.context
    display = context.stand(state).latest

    def tell(status: str, standing: Standing) -> dict[str, Any]:
        seen = [one.observed for one in standing.displays if one.observed is not None]
        precedent = Precedent(
            case=display.proposal.case,
            company=context.words.context,
            option=display.proposal.option,
            status=status,
            alerts=seen[-1]["alerts"] if seen else [],
            worth=seen[-1]["worth"] if seen else 0,
            promised=seen[-1]["promised"] if seen else 0,
            actuals=[actual for observed in seen for actual in observed["actuals"]],
        )
        return {"precedent": precedent, "features": sorted(context.course.features)}

    context.log.verify(context.thread)
    return {"status": context.gate.close(context.thread, display.number, tell)}


FullGraph = CompiledStateGraph[FullState, FullContext, FullState, FullState]


async def after_dispatch(state: FullState) -> list[str]:
    """Route to every seat at once, also where the thread is opened anew and holds reports."""
    return list(state["briefs"])


async def after_reconcile(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Route a question to its answer, a draft by its type.

    A routine draft, or one that goes to the reviewer, is not voted on.
    """
    if state["question"] is not None:
        return "answer"
    context = runtime.context
    judged = judge(state, context.course.case.public, context.stand(state))
    is_open = judged.decision_type in ("contested", "critical")
    return "vote" if is_open and state["rounds"] > 0 else "propose"


async def after_review(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Route by the ruling, to the end after too many; an approval leads to the commit, which verifies it."""
    standing = runtime.context.stand(state)
    ruling = standing.latest.ruling
    if ruling == "waiting":
        return "review"
    if ruling == "approve":
        return "commit"
    if standing.revision > MAX_REVISIONS or standing.num_refused >= MAX_REFUSALS:
        return "close"
    return "reconcile" if ruling == "reject" else "propose"


async def after_commit(state: FullState, *, runtime: Runtime[FullContext]) -> list[str]:
    """Route to all executors at once; to the end where there is nothing to carry out."""
    display = runtime.context.stand(state).latest
    if not display.is_committed:
        return [await after_review(state, runtime=runtime)]
    return [f"execute_{part.role}" for part in display.proposal.parts] or ["close"]


async def after_monitor(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Re-plan while an alert stands and a re-plan is left."""
    display = runtime.context.stand(state).latest
    has_alert = bool((display.observed or {}).get("alerts"))
    return "replan" if has_alert and display.proposal.attempt < MAX_REPLANS else "close"


async def after_replan(state: FullState, *, runtime: Runtime[FullContext]) -> list[str]:
    """Route to the seats whose facts changed, at once; to reconcile where there is none."""
    observed = runtime.context.stand(state).latest.observed or {}
    return [role for role in state["briefs"] if role in observed.get("changed", ())] or ["reconcile"]


@cache
def _compile(seats: tuple[str, ...]) -> FullGraph:
    graph = StateGraph(FullState, context_schema=FullContext)
    executors = [f"execute_{role}" for role in seats]
    for name, node in (
        ("intake", intake),
        ("dispatch", dispatch),
        ("reconcile", team_nodes.make_reconcile_node(seats, write_renewed_brief)),
        ("answer", team_nodes.answer),
        ("vote", team_nodes.make_vote_node(seats)),
        ("propose", propose),
        ("review", review),
        ("commit", commit),
        ("monitor", monitor),
        ("replan", replan),
        ("close", close),
        *((role, team_nodes.make_report_node(role)) for role in seats),
        *((f"execute_{role}", make_executor(role)) for role in seats),
    ):
        graph.add_node(name, node, input_schema=FullState)  # a shared node asks for the team's part only
    graph.add_edge(START, "intake")
    graph.add_edge("intake", "dispatch")
    graph.add_conditional_edges("dispatch", after_dispatch, list(seats))
    for role in seats:
        graph.add_edge(role, "reconcile")
    graph.add_conditional_edges("reconcile", after_reconcile, ["answer", "vote", "propose"])
    graph.add_edge("answer", "reconcile")
    graph.add_conditional_edges("vote", team_nodes.make_after_vote("propose"), ["reconcile", "propose"])
    graph.add_edge("propose", "review")
    graph.add_conditional_edges("review", after_review, ["review", "commit", "propose", "reconcile", "close"])
    graph.add_conditional_edges("commit", after_commit, [*executors, "propose", "close"])
    graph.add_edge(executors, "monitor")
    graph.add_conditional_edges("monitor", after_monitor, ["replan", "close"])
    graph.add_conditional_edges("replan", after_replan, [*seats, "reconcile"])
    graph.add_edge("close", END)
    return graph.compile()


def full_graph(seats: tuple[str, ...], checkpointer: BaseCheckpointSaver[str] | None) -> FullGraph:
    """Return the compiled graph of these seats on a checkpointer; None: it can be drawn, not played."""
    return _compile(seats).copy({"checkpointer": checkpointer})


def open_full() -> FullGraph:
    """Return the governed graph of the five roles, for LangGraph's own tools: `langgraph.json` names it."""
    return full_graph(SPECIALISTS, None)
