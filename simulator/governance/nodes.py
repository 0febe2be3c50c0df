"""The nodes that only the governed graph has, its state, and the services that a node is given.

Nothing in the state is permission: whether something was approved or done is asked of the gate, each time.
What a node does is an entry of the log, written once: a play that starts anew meets what was done and does
nothing twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import ValidationError

from roles.team import NO_OPTION, Decision
from scenarios.team.offers import CheckedReport, find_part, load_table
from scenarios.team.playable import PlayableCase, PublicCase
from scenarios.written.written_case import FreeCase
from simulator.game import MakeGame, TeamGame
from simulator.governance.gate import Gate, Settled, Standing
from simulator.governance.log import DecisionLog
from simulator.governance.outcomes import CarriedPlan, Observation, Outcomes
from simulator.governance.precedents import Precedent, Precedents, list_features, write_recollection
from simulator.governance.proposal import CaseWords, OfferLine, PlanPart, Proposal, ReportLine
from simulator.governance.resolution import Resolution, assign_duty, decide_for, make_parts, resolve
from simulator.governance.seals import refuse
from simulator.graph import nodes as team_nodes
from simulator.graph.context import EpisodeContext
from simulator.graph.nodes import Node
from simulator.graph.state import TeamState, Update, list_objectors, list_parsed

WriteBriefs = Callable[[PlayableCase, TeamGame], dict[str, str]]
COMPARED = ("option", "decision_type", "risk_score", "cost", "worth", "budget", "accountable")


class FullState(TeamState):
    """Everything that the governed graph carries; `round` counts drafts since the case or the re-plan."""

    precedents: list[Precedent]
    redraft_reason: str  # why ReconcileGPT drafts anew; it reads this before the brief
    ruled_out: dict[str, str]  # option -> why the reviewer took it out of the case
    changed: list[str]  # seats whose facts changed: they report again before the re-plan
    edited: str | None  # the reviewer's own option, to be proposed anew
    proposal: dict[str, Any] | None
    shown: int  # number of the request that is proposed next, or waits
    ruling: str  # how the last review ended, "waits" without an answer; for the route only
    attempt: int  # 0 the first plan, up to 3 re-plans
    revision: int  # edits and rejections
    refusals: int  # answers that did not count
    committed: str  # digest, for the route only; "" where nothing is
    alerts: list[str]  # seats whose KPI fell under its floor, or that lost too much
    status: str


def open_full_case(opened: TeamState) -> FullState:
    """Return the graph's first state: what the seats may read, nothing else."""
    return FullState(
        **opened,
        precedents=[],
        redraft_reason="",
        ruled_out={},
        changed=[],
        edited=None,
        proposal=None,
        shown=0,
        ruling="",
        attempt=0,
        revision=0,
        refusals=0,
        committed="",
        alerts=[],
        status="open",
    )


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


def read_proposal(state: FullState, context: FullContext) -> Proposal:
    """Read this thread's proposal from the state.

    Raises:
        NotApprovedError: "tampered": there is none, it is malformed, or it is another thread's.
    """
    try:
        proposal = Proposal.model_validate(state["proposal"])
    except ValidationError as error:
        refuse("tampered", f"the state holds no proposal: {error.error_count()} errors")
    if proposal.thread != context.thread:
        refuse("tampered", f"a proposal of thread {proposal.thread!r} stands in another thread's state")
    return proposal


def read_plan(proposal: Proposal) -> CarriedPlan:
    """Return what a proposal funds; seats by name, as a plan that is read from the log has them."""
    bought = sorted((part for part in proposal.parts if part.choice), key=lambda part: part.role)
    return CarriedPlan(
        option=proposal.option,
        funded={part.role: tuple(part.choice) for part in bought},
        costs={part.role: part.cost for part in bought},
        worths={part.role: part.worth for part in bought},
    )


def list_plans(standing: Standing) -> dict[str, CarriedPlan]:
    """Return the plans that were carried out and then planned anew, by their proposals' digests."""
    digests = [entry.body["digest"] for entry in standing.find("replanned")]
    return {digest: read_plan(standing.find_proposal(digest)) for digest in digests}


def list_before(standing: Standing, digest: str) -> list[CarriedPlan]:
    """Return the plans that were carried out before the proposal of this digest."""
    plans = list_plans(standing)
    names = list(plans)
    return [plans[name] for name in (names[: names.index(digest)] if digest in plans else names)]


async def intake(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Check the case and recall past ones of the same company, and similar ones.

    Raises:
        UserError: see `simulator.graph.nodes.intake`.
    """
    update = await team_nodes.intake(state, runtime=runtime)
    return {**update, "precedents": runtime.context.recall()}


async def dispatch(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hand out the briefs: with each what closed cases of the same company showed of the seat's upgrades."""
    company = runtime.context.words.context
    own = [one for one in state["precedents"] if company and one["company"] == company]
    told = {role: write_recollection(own, role) for role in state["briefs"]}
    return {
        "briefs": {
            role: f"{told[role]}\n{brief}" if told[role] else brief for role, brief in state["briefs"].items()
        }
    }


def write_renewed_brief(game: TeamGame, state: FullState, reports: Mapping[str, Any]) -> str:
    """Write the decision brief, after the reason of a new draft where there is one."""
    brief = game.write_decision_brief(reports, state["ruled_out"])
    return f"{state['redraft_reason']}\n{brief}" if state["redraft_reason"] else brief


def judge(state: FullState, public: PublicCase) -> Resolution:
    """Judge the state's draft, or the reviewer's own option, in plain code."""
    table, edited = _read_table(state), state["edited"]
    if edited is not None:
        draft, objectors = decide_for(public, table, edited, state["ruled_out"]), list[str]()
    else:
        draft, objectors = _read_draft(state), list_objectors(state)
    return resolve(
        public,
        table,
        draft,
        objectors=objectors,
        ruled_out=state["ruled_out"],
        num_failures=state["attempt"],
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

    One that was displayed before is taken from the log. What people ruled, what was spent and which plan was
    shown before is the log's to say.

    Raises:
        NotApprovedError: "tampered": the state's reports offer what the case does not have; or "closed".
    """
    context, number = runtime.context, state["shown"]
    standing = context.gate.stand(context.thread)
    request = standing.find_nth(number)
    if request is None:
        request, number = context.gate.show(_make_proposal(state, context, standing), number)
    return {"proposal": request.proposal.model_dump(), "shown": number, "ruling": "", "committed": ""}


def _make_proposal(state: FullState, context: FullContext, standing: Standing) -> Proposal:
    refused = standing.find_refused()
    if refused is not None:
        return refused.proposal  # once more
    context.course.plans = list(list_plans(standing).values())
    case = context.course.case
    state = {
        **state,
        "attempt": standing.attempt,
        "edited": standing.edited,
        "ruled_out": standing.ruled_out,
    }
    resolution = judge(state, case.public)
    parts = make_parts(list(case.seats), resolution)
    for part in parts:
        if part.choice and not _is_true(part, resolution.option, case):
            refuse("tampered", f"{part.role} can buy no part of this cost and worth on {resolution.option}")
    precedents = context.recall()
    responsible, accountable = assign_duty(list(case.seats), parts, precedents)
    draft = None if state["edited"] is not None else _read_draft(state)
    proposal = Proposal(
        thread=context.thread,
        case=case.key,
        attempt=standing.attempt,
        revision=standing.revision,
        option=resolution.option,
        reason="" if draft is None else draft.reason,
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
    shown = standing.find("requested")
    before = shown[-1].body["request"]["proposal"] if shown else None
    return proposal.model_copy(update={"changes": list_changes(before, proposal)})


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


def list_changes(before: Mapping[str, Any] | None, now: Proposal) -> list[str]:
    """List in words what differs from the proposal before; nothing for the first."""
    if before is None:
        return []
    after = now.model_dump()
    changes = [
        f"{name.replace('_', ' ')}: {before.get(name)} before, {after[name]} now"
        for name in COMPARED
        if before.get(name) != after[name]
    ]
    actions = {part["role"]: part["action"] for part in before.get("parts", [])}
    changes += [
        f"{part.role}: {actions.get(part.role, 'nothing')} before, {part.action} now"
        for part in now.parts
        if actions.get(part.role) != part.action
    ]
    old, new = list(before.get("conditions", [])), after["conditions"]
    changes += [f"new condition: {one}" for one in new if one not in old]
    changes += [f"condition dropped: {one}" for one in old if one not in new]
    return changes


async def review(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Wait until the log holds an answer to the request that it displays; only that has an effect.

    Raises:
        NotApprovedError: "never_displayed".
    """
    gate, thread, number = runtime.context.gate, runtime.context.thread, state["shown"]
    request = gate.stand(thread).find_nth(number)
    if request is None:
        refuse("never_displayed", f"request {number} was never displayed in thread {thread!r}")
    settled = gate.stand(thread).find_settled(request.interrupt_id)
    if settled is None:
        interrupt(request.model_dump())
        settled = gate.stand(thread).find_settled(request.interrupt_id)
    if settled is None:
        return {"ruling": "waits"}
    return {**_apply_ruling(state, request.proposal, settled), "shown": number + 1}


def _apply_ruling(state: FullState, proposal: Proposal, settled: Settled) -> Update:
    ruling = settled["ruling"]
    if ruling == "refused":
        return _refuse(state)
    if ruling == "approve":
        return {"ruling": ruling}
    update: Update = {"ruling": ruling, "revision": state["revision"] + 1, "edited": settled["option"]}
    if ruling == "reject":
        update |= {
            "round": 0,
            "redraft_reason": f"The reviewer rejects {proposal.option}. {settled['feedback']}".strip(),
        }
        if proposal.option != NO_OPTION:
            update["ruled_out"] = {**state["ruled_out"], proposal.option: "the reviewer rejected it"}
    return update


def _refuse(state: FullState) -> Update:
    return {"ruling": "refused", "refusals": state["refusals"] + 1, "committed": ""}


async def commit(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Let the gate verify the approval anew: from here on exactly this proposal may be carried out."""
    proposal = read_proposal(state, runtime.context)
    refused = runtime.context.gate.commit(proposal)
    return _refuse(state) if refused else {"committed": proposal.digest}


def make_executor(role: str) -> Node[FullState]:
    """Make the node in which one seat carries out its part of the committed proposal.

    Raises NotApprovedError where nothing was committed: the way to it did not lead through the gate.
    """

    async def execute(state: FullState, *, runtime: Runtime[Any]) -> Update:
        proposal = read_proposal(state, runtime.context)
        for part in proposal.parts:
            if part.role == role:
                runtime.context.gate.deliver(proposal, part)
        return {}

    return execute


async def outcome(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Observe what the plan in force brought; only what can be observed is logged."""
    context = runtime.context
    proposal = read_proposal(state, context)
    plan, digest = read_plan(proposal), proposal.digest

    def look() -> dict[str, Any]:
        before = list_before(context.gate.stand(context.thread), digest)
        try:
            observation = context.outcomes.observe(before, plan)
        except KeyError as error:
            refuse("tampered", f"the committed plan cannot be carried out: {error.args[0]}")
        return {"alerts": list_alerts(proposal, observation), **observation}

    context.gate.observe(proposal, look)
    return {}


def list_alerts(proposal: Proposal, observation: Mapping[str, Any]) -> list[str]:
    """List the seats whose KPI is under its floor, that lost too much, or of which nothing was observed."""
    kpis, lost = observation.get("kpis", {}), observation.get("lost", {})
    return [
        part.role
        for part in proposal.parts
        if kpis.get(part.role, -1) < part.kpi_floor or lost.get(part.role, 0) > part.most_lost
    ]


def find_observed(context: FullContext, proposal: Proposal) -> dict[str, Any]:
    """Return what the log says was observed of the proposal; the state is not believed.

    Raises:
        NotApprovedError: "tampered": nothing was observed of it, or the log was changed.
    """
    observed = context.gate.stand(context.thread).find_observed(proposal.digest)
    if observed is None:
        refuse("tampered", "nothing was observed of the proposal")
    return observed


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hold every KPI against its floor, every loss against its bound; what was not observed is an alert."""
    return {"alerts": find_observed(runtime.context, read_proposal(state, runtime.context))["alerts"]}


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again: with what is left of the money, and new briefs for seats whose facts changed."""
    context = runtime.context
    proposal = read_proposal(state, context)
    observed = find_observed(context, proposal)
    told = {name: observed[name] for name in ("alerts", "changed", "left")}
    context.gate.replan(proposal, {"option": proposal.option, **told})
    before = list_before(context.gate.stand(context.thread), proposal.digest)
    context.course.plans = [*before, read_plan(proposal)]
    written = context.course.write_briefs(context.course.plans)
    kpis, lost = observed["kpis"], observed["lost"]
    figures = "; ".join(
        f"{role} {kpis.get(role, 0)} percent of its limit, {lost.get(role, 0)} k$ lost"
        for role in observed["alerts"]
    )
    changed = [role for role in state["briefs"] if role in observed["changed"]]
    briefs = {role: _write_news(observed, role, written[role]) for role in changed}
    return {
        "attempt": len(context.course.plans),
        "round": 0,
        "question": None,
        "answered": [],
        "votes": {},
        "edited": None,
        "ruling": "",
        "committed": "",
        "changed": changed,
        "briefs": {**state["briefs"], **briefs},
        "options": list(context.course.case.options),
        "redraft_reason": f"Execution of {proposal.option} did not hold: {figures}. Plan again.",
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
    proposal = read_proposal(state, context)

    def tell(status: str, standing: Standing) -> dict[str, Any]:
        seen: list[Observation] = [cast(Observation, entry.body) for entry in standing.find("observed")]
        last = standing.find("observed")[-1:]
        precedent = Precedent(
            case=proposal.case,
            company=context.words.context,
            option=proposal.option,
            status=status,
            alerts=last[0].body["alerts"] if last else [],
            worth=seen[-1]["worth"] if seen else 0,
            promised=seen[-1]["promised"] if seen else 0,
            actuals=[actual for body in seen for actual in body["actuals"]],
        )
        return {"precedent": precedent, "features": sorted(context.course.features)}

    context.log.verify(context.thread)
    return {"status": context.gate.close(proposal, tell)}
