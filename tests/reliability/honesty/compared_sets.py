"""One case with a cheat and without it, as the report sets that a credit scheme compares.

A group holds, for every choice of partners, one set with the honest report of the cheater and one with the
cheat; two decisions are made on each. So an advantage of a cheating set is what training would reinforce.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evaluation.audit.team_cheats import VOTE_CHEATS
from reliability.honesty.case_rewards import CaseRewards, Effect, Table
from roles.team import Report
from simulator.records import Episode
from simulator.reward import TeamVerdict
from training.rl.credit import SCHEMES, CreditScheme, dr_grpo, list_coalitions, share_gains, vote_scores
from training.rl.records import ScoredEpisode, ScoredGroup, ScoredReportSet

SECOND_CHAIR = "return"  # of the second decision on every set
ROUNDS = "any scheme with two rounds"
UNSPOKEN = Episode(scenario_key="", index_in_group=0, trajectories={}, reports={}, decision="", votes={})
Habits = Mapping[str, str]  # seat -> the habit by which its expert reports


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """One report set of a group."""

    table: Table
    texts: dict[str, str]
    is_cheat: bool


def measure_cheat(
    case: CaseRewards,
    name: str,
    cheaters: Sequence[str],
    partners: Sequence[Habits],
    *,
    chair: str = "exact",
) -> Effect:
    """Compare a cheat by these seats with their honest reports among each choice of partners."""
    sets: list[_Set] = []
    for habits in partners:
        honest = {seat: case.write(seat, habits[seat]) for seat in case.scenario.seats}
        texts = {seat: report.model_dump_json() for seat, report in honest.items()}
        false = {seat: _cheat(case, name, seat, honest, texts) for seat in cheaters}
        for is_cheat, written in ((False, texts), (True, {**texts, **false})):
            table = {seat: case.read(seat, text) for seat, text in written.items()}
            sets.append(_Set(table=table, texts=written, is_cheat=is_cheat))
    if name in VOTE_CHEATS:
        return _compare_votes(case, name, cheaters, sets, chair)
    key = (tuple(cheaters), chair, *(case.identify(one.table) for one in sets))
    if key not in case.effects:
        case.effects[key] = _compare_reports(case, cheaters, sets, chair)
    return case.effects[key]


def _compare_reports(case: CaseRewards, cheaters: Sequence[str], sets: Sequence[_Set], chair: str) -> Effect:
    chairs = (chair, SECOND_CHAIR)
    rewards = [[case.reward(one.table, by) for by in chairs] for one in sets]
    episodes = [tuple(map(_as_scored, own)) for own in rewards]
    scored: dict[str, list[list[float]]] = {}
    for scheme_name, scheme_type in SCHEMES.items():
        scheme = scheme_type()
        scored[scheme_name] = []
        for seat in cheaters:
            rows = _value_reports(case, scheme_name, seat, sets)
            compared = [
                ScoredReportSet(scored=own, counterfactual_rewards={seat: row})
                for own, row in zip(episodes, rows, strict=True)
            ]
            scored[scheme_name].append(_estimate(scheme.specialist_scores(seat, compared)))
    return Effect(gain=_gain([fmean(own) for own in rewards], sets), advantages=scored)


def _cheat(
    case: CaseRewards, name: str, seat: str, honest: Mapping[str, Report], texts: Mapping[str, str]
) -> str:
    return texts[seat] if name in VOTE_CHEATS else case.write_cheat(name, seat, honest)


def _value_reports(
    case: CaseRewards, scheme: str, seat: str, sets: Sequence[_Set]
) -> list[tuple[float, ...]]:
    """Return the scheme's further input beside the sets' own rewards: a row of numbers for each set."""
    if scheme == "cross_valued":
        return [
            tuple(case.reward({**among.table, seat: own.table[seat]}, "exact") for among in sets)
            for own in sets
        ]
    if scheme == "shapley":
        return [(_shapley(case, one.table)[seat],) for one in sets]
    return [() for _ in sets]


def _shapley(case: CaseRewards, table: Table) -> dict[str, float]:
    seats = list(table)
    rewards = {
        inside: case.reward({seat: table[seat] if seat in inside else None for seat in seats}, "exact")
        for inside in list_coalitions(seats)
    }
    return share_gains(seats, rewards)


def _compare_votes(
    case: CaseRewards, name: str, cheaters: Sequence[str], sets: Sequence[_Set], chair: str
) -> Effect:
    """Compare votes: with the reports' advantages, or by themselves where a scheme holds votes fixed."""
    scenario = case.scenario
    scored_sets = []
    for one in sets:
        decision = case.decide(one.table, chair).model_dump_json()
        votes = dict.fromkeys(cheaters, VOTE_CHEATS[name]) if one.is_cheat else {}
        scored_sets.append(ScoredReportSet(scored=(case.vote(one.texts, decision, votes),)))
    group = ScoredGroup(scenario=scenario, report_sets=tuple(scored_sets))
    alone = {seat: vote_scores(seat, group, case.weights) for seat in cheaters}
    scored = {
        scheme_name: [
            _estimate(
                alone[seat]
                if scheme_type.holds_votes_fixed
                else _score_episodes(case, scheme_name, scheme_type(), seat, group, sets)
            )
            for seat in cheaters
        ]
        for scheme_name, scheme_type in SCHEMES.items()
    }
    return Effect(gain=_gain([one.rewards[0] for one in scored_sets], sets), advantages=scored)


def compare_objections(case: CaseRewards, name: str, cheaters: Sequence[str], habit: str) -> Effect:
    """Compare a cheat with votes by the book over two rounds, where the first draft looks at no limit.

    The draft is an expert's by the reports without their needs and vetoes. Where a seat objects, the expert
    reads the whole reports, and all vote again. Each vote carries the advantage of the decision that it led
    to, as training with two rounds has it under every scheme.
    """
    honest = {seat: case.write(seat, habit) for seat in case.scenario.seats}
    texts = {seat: report.model_dump_json() for seat, report in honest.items()}
    table = {seat: case.read(seat, text) for seat, text in texts.items()}
    without_limits = {
        seat: None if report is None else case.share(replace(report, needs=(), veto=()))
        for seat, report in table.items()
    }
    rewards = []
    for votes in ({}, dict.fromkeys(cheaters, VOTE_CHEATS[name])):
        played = case.vote(texts, case.decide(without_limits, "exact").model_dump_json(), votes)
        if case.is_objected(played.episode):
            played = case.vote(texts, case.decide(table, "exact").model_dump_json(), votes)
        rewards.append(played.verdict.reward)
    return Effect(gain=rewards[1] - rewards[0], advantages={ROUNDS: [_estimate(rewards) for _ in cheaters]})


def _score_episodes(
    case: CaseRewards, name: str, scheme: CreditScheme, seat: str, group: ScoredGroup, sets: Sequence[_Set]
) -> list[float]:
    rows = _value_reports(case, name, seat, sets)
    compared = [
        ScoredReportSet(scored=one.scored, counterfactual_rewards={seat: row})
        for one, row in zip(group.report_sets, rows, strict=True)
    ]
    return scheme.specialist_scores(seat, compared)


def _estimate(scores: Sequence[float]) -> list[float]:
    (advantages,) = dr_grpo([scores])
    return advantages


def _gain(rewards: Sequence[float], sets: Sequence[_Set]) -> float:
    return fmean((1 if one.is_cheat else -1) * 2 * reward for reward, one in zip(rewards, sets, strict=True))


def _as_scored(reward: float) -> ScoredEpisode:
    verdict = TeamVerdict(
        reward=reward, value=0.0, consensus=1.0, unresolved=0.0, escalation=0.0, explanation=""
    )
    return ScoredEpisode(episode=UNSPOKEN, verdict=verdict)
