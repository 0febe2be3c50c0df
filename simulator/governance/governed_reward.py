"""Scores a governed episode by the world that its plans met: the team reward of what is in place at its end.

Pure, with the truth in `outcomes`; never in the graph.
"""

from dataclasses import replace

from roles.team import NO_OPTION
from scenarios.execution.situation import look_back, value_situation
from scenarios.team import TeamScenario, judge_decision
from simulator.governance.governed_graph import read_plan
from simulator.governance.outcomes import CarriedPlan, SimulatedOutcomes
from simulator.governance.proposal import Proposal
from simulator.governance.record import Chapter, GovernedRecord
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, combine_parts, list_right_votes


def list_carried(record: GovernedRecord) -> list[CarriedPlan]:
    """Return the plans that were carried out, in order."""
    carried = [chapter.proposal for chapter in record.chapters if chapter.observation is not None]
    return [read_plan(Proposal.model_validate(dict(proposal))) for proposal in carried]


def value_plans(record: GovernedRecord, outcomes: SimulatedOutcomes) -> list[float]:
    """Return what is in place after each carried-out plan, valued in hindsight, in [0, 1]."""
    plans = list_carried(record)
    return [
        value_situation(outcomes.world, outcomes.follow(plans[: number + 1])) for number in range(len(plans))
    ]


def read_last_draft(record: GovernedRecord, outcomes: SimulatedOutcomes) -> tuple[TeamScenario, ReadEpisode]:
    """Return the case that the last plan was made on, and reports, last draft and votes read against it."""
    scenario = outcomes.continue_case(list_carried(record)[: record.chapters[-1].attempt])
    return scenario, read_episode(scenario, record.episode)


def score_governed(
    record: GovernedRecord, outcomes: SimulatedOutcomes, weights: TeamRewardWeights
) -> TeamVerdict:
    """Score a closed episode: R = V (1 + c C) / (1 + c) - k U - h H as for `assess`, with

    - V what is in place at the end, as a share of what could be reached in this world from budget and
      reserve; how many plans there were does not count. Handing the case over is worth 1 where no option
      could be run from the beginning, else 0;
    - C the seats that rightly accept or object to the last draft, by what they could know; a seat that the
      house does not ask (routine drafts, escalations) has accepted;
    - U the seats whose hard limit is broken in the end;
    - H needless or missed escalation of the last draft on the case that it was made on.
    A last draft that does not reach execution as written (malformed, or not to be run, or rejected) has V 0
    and H 1, and U of what it names: the least of the case where it is malformed.

    Raises:
        ValueError: the episode ended in an infrastructure fault, or before a proposal.
    """
    if record.error is not None or not record.chapters:
        raise ValueError(f"an episode without an outcome has no reward: {record.error or record.status}")
    last = record.chapters[-1]
    scenario, read = read_last_draft(record, outcomes)
    judged = judge_decision(scenario, read.table, read.decision)
    is_carried = (
        read.decision is not None and last.is_committed and last.proposal["option"] == read.decision.option
    )
    escalates = read.decision is not None and read.decision.escalate
    value, unresolved = 0.0, len(judged.broken_limits) / len(scenario.seats)
    if is_carried and escalates:
        is_lost = last.attempt == 0 and scenario.optimum is None
        value = float(is_lost or look_back(outcomes.world).best is None)
    elif is_carried:
        value = value_plans(record, outcomes)[-1]
        unresolved = sum(kpi < 100 for kpi in last.kpis.values()) / len(scenario.seats)
    given = {seat: read.votes[seat] if seat in record.episode.votes else "accept" for seat in scenario.seats}
    consensus = len(list_right_votes(scenario, replace(read, votes=given))) / len(given)
    escalation = float(not is_carried or judged.escalation_fault)
    return TeamVerdict(
        reward=combine_parts(value, consensus, unresolved, escalation, weights),
        value=value,
        consensus=consensus,
        unresolved=unresolved,
        escalation=escalation,
        explanation=_explain(last, value),
    )


def open_episode(record: GovernedRecord) -> Episode:
    """Return the episode up to the first proposal: reports, questions, last draft and votes on it."""
    if not record.chapters or not record.chapters[0].drafts:
        return record.episode
    first = record.chapters[0]
    draft = first.drafts[-1]
    asked = tuple(question for one in first.drafts for question in one.asked)
    return replace(record.episode, reports=first.reports, asked=asked, decision=draft.text, votes=draft.votes)


def _explain(last: Chapter, value: float) -> str:
    option = last.proposal["option"]
    what = "handed over" if option == NO_OPTION else f"option {option}"
    in_place = "" if last.observation is None else f", {last.observation['worth']} k$ in place"
    return f"{what} with plan {last.attempt + 1}{in_place}: value in hindsight {value:.2f}"
