"""The case that each plan of a governed episode was made on, and the plan's true worth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roles.team import NO_OPTION
from scenarios.company.optimum import plan_parts, plan_worth
from scenarios.company.records import Plan
from scenarios.execution.situation import look_back
from scenarios.team import PlayableCase, TeamScenario
from simulator.governance.governed_reward import list_carried
from simulator.governance.nodes import read_plan
from simulator.governance.outcomes import Outcomes, SimulatedOutcomes
from simulator.governance.proposal import Proposal
from simulator.governance.record import GovernedRecord
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCourse:
    """The course of an episode as its chapters were planned.

    Example: plan_course(record, outcomes).cases[0] is the case before any plan
    """

    cases: tuple[PlayableCase, ...]  # by chapter
    truths: tuple[str, ...]  # by chapter; "" where nobody knows
    hindsight: str  # what could have been reached in this world; "" where nobody knows


def plan_course(record: GovernedRecord, outcomes: Outcomes) -> PlannedCourse:
    """Return the case of every chapter, and the truth about its plan where the outcomes hold one."""
    plans = list_carried(record)
    cases = tuple(outcomes.continue_case(plans[: chapter.attempt]) for chapter in record.chapters)
    if not isinstance(outcomes, SimulatedOutcomes):
        return PlannedCourse(cases=cases, truths=("",) * len(cases), hindsight="")
    truths = tuple(
        _say_truth(case, Proposal.model_validate(dict(chapter.proposal)))
        for case, chapter in zip(cases, record.chapters, strict=True)
        if isinstance(case, TeamScenario)
    )
    return PlannedCourse(cases=cases, truths=truths, hindsight=_say_hindsight(outcomes))


def read_chapters(record: GovernedRecord, cases: Sequence[PlayableCase]) -> list[ReadEpisode]:
    """Read reports, last draft and votes of every chapter against the case that it was planned on."""
    reports: dict[str, str] = {}
    asked: Episode = record.episode
    read = []
    for case, chapter in zip(cases, record.chapters, strict=True):
        reports |= chapter.reports
        draft = chapter.drafts[-1] if chapter.drafts else None
        asked = replace(
            record.episode,
            reports=dict(reports),
            asked=tuple(question for one in chapter.drafts for question in one.asked),
            decision=draft.text if draft else "",
            votes=draft.votes if draft else {},
        )
        read.append(read_episode(case, asked))
    return read


def _say_truth(case: TeamScenario, proposal: Proposal) -> str:
    """Say the plan's worth by the structures as they were before it was carried out, beside the best."""
    if case.optimum is None:
        right = "right" if proposal.option == NO_OPTION else "wrong"
        return f"No option could be run with the money there was; this was {right}."
    best = f"the best plan, option {case.optimum.plan.option} at cost {case.optimum.cost}, was worth " + (
        f"{case.optimum.worth} k$"
    )
    if proposal.option == NO_OPTION:
        return f"Handing over was needless: {best}."
    plan: Plan = read_plan(proposal)
    broken = [part.seat for part in plan_parts(case.case, plan) if not part.keeps_limit]
    if broken:
        return f"It breaks the hard limit of {' and '.join(broken)}; {best}."
    worth = plan_worth(case.case, plan)
    if worth == case.optimum.worth:
        return f"It was the best plan that there was: worth {worth} k$ as far as anybody could know."
    return f"It was worth {worth} k$ as far as anybody could know; {best}."


def _say_hindsight(outcomes: SimulatedOutcomes) -> str:
    back = look_back(outcomes.world)
    if back.best is None or back.plan is None:
        return "Whoever had known all that would happen could not have run any option."
    bought = [name for choice in back.plan.funded.values() for name in choice]
    return (
        f"Whoever had known all that would happen could have reached {back.best} k$ from budget and reserve: "
        f"option {back.plan.option} with {', '.join(bought) or 'nothing bought'}."
    )
