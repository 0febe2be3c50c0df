"""Baselines on the same scenarios: blind, constant, heuristic, exact players, and a single agent's episodes.

Every vote is by the book except where a baseline says otherwise.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations

from evaluation.scoring.outcomes import RoleOutcome, TeamOutcome, describe_solo
from evaluation.scoring.sealed_plays import score_all
from roles.base import AnswerError
from roles.team import NO_OPTION, RECONCILER, Ask, AskMessage, Decision, OfferReply, Report
from scenarios.base import Family, Scenario
from scenarios.company.coordination import reckon_worths
from scenarios.company.knapsack import list_efficient
from scenarios.company.optimum import Optimum, find_optimum
from scenarios.company.records import Part, Plan
from scenarios.registry import families
from scenarios.team import PlanGame, Style, Table, TeamScenario
from scenarios.team.experts import (
    FUNDING_HABITS,
    REPORT_HABITS,
    best_decision,
    best_reply,
    best_report,
    best_vote,
    choose_part,
    make_offer,
    sample_habit,
)
from scenarios.team.funding import Funding, fund_in_order, list_fundings
from scenarios.team.offers import (
    CheckedReport,
    add_offer,
    check_reply,
    check_report,
    is_needed,
    is_vetoed,
    offers_on,
)
from scenarios.team.questions import choose_question
from scenarios.team.single import SingleGame
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import SoloEpisode
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.graph.concurrency import run_all
from simulator.graph.runner import MAX_TURNS
from simulator.reading import read_episode
from simulator.records import Episode, Question, Trajectory
from simulator.reward import TeamRewardWeights

BEST_HABITS = ("measured", "exact")  # of those written by hand, the pair that serves the team best
BEST_SHOWN = ("rising", "exact")  # of those that demonstrations show
EXPERTS: Mapping[str, tuple[str | None, str | None]] = {
    "oracle_common": (None, None),
    "oracle_best": BEST_HABITS,
    "oracle_rising": BEST_SHOWN,
    "oracle_searched": ("searched", "exact"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlay:
    """Everything that is written at one table before the vote.

    Example: TablePlay(reports={"cto": report, ...}, decision=decision)
    """

    reports: Mapping[str, Report]
    decision: Decision
    asked: Sequence[tuple[Ask, OfferReply]] = ()


TablePlayer = Callable[[TeamScenario, random.Random], TablePlay]
MakePlanGame = Callable[[TeamScenario], PlanGame]
ASK_NOTHING: MakePlanGame = partial(PlanGame, questions=0)
Chair = Callable[[TeamScenario, Table, random.Random], Decision]


def check_reports(scenario: TeamScenario, reports: Mapping[str, Report]) -> dict[str, CheckedReport]:
    """Every report with its claims checked."""
    return {seat: check_report(scenario, seat, report) for seat, report in reports.items()}


def write_reports(scenario: TeamScenario, habit: str | None, rng: random.Random) -> dict[str, Report]:
    """Reports of experts of one habit; with None every seat draws its own."""
    return {
        seat: best_report(scenario, seat, habit or sample_habit(rng, REPORT_HABITS))
        for seat in scenario.seats
    }


def play_experts(
    report_habit: str | None, funding_habit: str | None, make_game: MakePlanGame = ASK_NOTHING
) -> TablePlayer:
    """Experts of these habits; with None each draws its own. ReconcileGPT asks where a question pays."""

    def decide(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
        return best_decision(scenario.public, table, funding_habit or sample_habit(rng, FUNDING_HABITS))

    return play_chair(decide, report_habit, make_game)


def play_chair(
    chair: Chair, report_habit: str | None = None, make_game: MakePlanGame = ASK_NOTHING
) -> TablePlayer:
    """Experts of this habit, by default each of another, report and reply; this chair decides."""

    def play(scenario: TeamScenario, rng: random.Random) -> TablePlay:
        reports = write_reports(scenario, report_habit, rng)
        table, asked = ask_experts(make_game(scenario), check_reports(scenario, reports))
        return TablePlay(reports=reports, decision=chair(scenario, table, rng), asked=asked)

    return play


def ask_experts(game: PlanGame, table: Table) -> tuple[Table, list[tuple[Ask, OfferReply]]]:
    """Ask while a question pays by the reports; return the table with what replies add, and both."""
    case, asked = game.case, list[tuple[Ask, OfferReply]]()
    while len(asked) < game.most_questions:
        ask = choose_question(case.public, table, [ask for ask, _ in asked])
        if ask is None:
            break
        known, reply = table[ask.seat], best_reply(case, ask.seat, ask, game.style_of(ask.seat))
        if offer := check_reply(case, ask, known, reply):
            table = {**table, ask.seat: add_offer(known, offer)}
        asked.append((ask, reply))
    return table, asked


def play_plan(scenario: TeamScenario, plan: Plan | None) -> TablePlay:
    """Every seat offers what the plan funds and ReconcileGPT funds it; None: the case is escalated."""
    reports = {}
    for seat in scenario.seats:
        choice = plan.funded.get(seat, ()) if plan else ()
        offered = [
            make_offer(part)
            for part in (scenario.parts_of(seat, plan.option) if plan else ())
            if part.choice and part.choice == choice
        ]
        reports[seat] = Report(
            offers=offered,
            needs=[option for option in scenario.options if is_needed(scenario, seat, option)],
            veto=[option for option in scenario.options if is_vetoed(scenario, seat, option)],
        )
    if plan is None:
        return TablePlay(reports=reports, decision=Decision(option=NO_OPTION, fund=[], escalate=True))
    tabled = offers_on(check_reports(scenario, reports), plan.option)
    return TablePlay(reports=reports, decision=_decide(plan.option, [offer.label for offer in tabled]))


def _decide(option: str, fund: Sequence[str]) -> Decision:
    return Decision(option=option, fund=list(fund), escalate=False)


def _fund(plan: Funding | None, option: str) -> Decision:
    return _decide(option, [offer.label for offer in plan.offers] if plan else [])


def decide_at_random(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    """Any option with any funding that can be run by the reports."""
    option = rng.choice(scenario.options)
    plans = list_fundings(scenario.public, table, option)
    return _fund(rng.choice(plans) if plans else None, option)


def decide_richest(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
    """The option that looks richest if all offers could be paid, funded by worth while money lasts."""
    public = scenario.public
    totals = {
        option: base + sum(offer.worth for offer in offers_on(table, option))
        for option, base in public.base.items()
    }
    option = max(totals, key=totals.__getitem__)
    return _fund(fund_in_order(public, table, option, by_return=False), option)


def decide_by_majority(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
    """The option that most seats favour by what each knows alone, then the option of the larger base."""
    votes = Counter(favourite_option(scenario, seat) for seat in scenario.seats)
    base = scenario.public.base
    option = max(scenario.options, key=lambda letter: (votes[letter], base[letter]))
    return _fund(fund_in_order(scenario.public, table, option, by_return=True), option)


def favourite_option(scenario: TeamScenario, seat: str) -> str:
    """The option of the greatest base plus the seat's own best worth within its share of the budget."""
    case = scenario.case
    worths = reckon_worths(case.parts[seat], case.budget // len(case.parts))
    totals = {letter: case.options[letter].base + worth for letter, worth in worths.items()}
    base = {letter: option.base for letter, option in case.options.items()}
    return max(totals or base, key=(totals or base).__getitem__)


def play_one_head(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """One head that sees all: on each option it buys by return while money lasts, then it compares."""
    plans = [plan for option in scenario.options if (plan := _buy_by_return(scenario, option))]
    best = max(plans, key=lambda found: found[0], default=None)
    return play_plan(scenario, best[1] if best else None)


def _buy_by_return(scenario: TeamScenario, option: str) -> tuple[int, Plan] | None:
    """Worth and plan: what the limits need, then the step of the greatest return; None: too dear."""
    case = scenario.case
    frontiers = {seat: list_efficient(own[option]) for seat, own in case.parts.items()}
    if not all(frontiers.values()):
        return None
    taken: dict[str, Part] = {seat: frontier[0] for seat, frontier in frontiers.items()}
    left = case.budget - sum(part.cost for part in taken.values())
    if left < 0:
        return None
    while True:
        steps = [
            (Fraction(part.worth - taken[seat].worth, part.cost - taken[seat].cost), seat, part)
            for seat, frontier in frontiers.items()
            for part in frontier
            if 0 < part.cost - taken[seat].cost <= left
        ]
        if not steps:
            break
        _, seat, part = max(steps, key=lambda step: step[0])
        left -= part.cost - taken[seat].cost
        taken[seat] = part
    worth = case.options[option].base + sum(part.worth for part in taken.values())
    return worth, Plan(option=option, funded={seat: part.choice for seat, part in taken.items()})


def play_best_habits(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """Each seat's best habit in hindsight, option by option, funded exactly: what the habits could reach."""

    def list_offered(seat: str, option: str) -> tuple[Part, ...]:
        offered = [choose_part(scenario, seat, option, habit) for habit in REPORT_HABITS]
        return (scenario.case.parts[seat][option][0], *(part for part in offered if part is not None))

    best = _find_optimum_of(scenario, list_offered)
    return play_plan(scenario, best.plan if best else None)


def play_fields(count: int) -> TablePlayer:
    """The best plan with parts of `count` seats alone, the best such seats in hindsight.

    No single agent that reads the facts of so few seats earns more. Limits of the others are known to it.
    """

    def play(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
        def list_known(known: Collection[str], seat: str, option: str) -> tuple[Part, ...]:
            return scenario.case.parts[seat][option][: None if seat in known else 1]  # the first buys nothing

        chosen = combinations(scenario.seats, count)
        found = [_find_optimum_of(scenario, partial(list_known, known)) for known in chosen]
        best = max((one for one in found if one), key=lambda one: one.worth, default=None)
        return play_plan(scenario, best.plan if best else None)

    return play


def _find_optimum_of(
    scenario: TeamScenario, parts_of: Callable[[str, str], tuple[Part, ...]]
) -> Optimum | None:
    """The optimum with these parts of each seat and option alone; None: no option can be run."""
    case = scenario.case
    parts = {seat: {option: parts_of(seat, option) for option in own} for seat, own in case.parts.items()}
    return find_optimum(replace(case, parts=parts))


def play_optimum(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """Every seat offers its part of the optimum; that one offer per option allows it is thereby shown."""
    return play_plan(scenario, scenario.optimum.plan if scenario.optimum else None)


def play_role_baselines(
    role: str, scenarios: Sequence[Scenario], style: Style
) -> dict[str, list[RoleOutcome]]:
    """Stage -> plays: random, best constant, greedy heuristic and oracle on the same scenarios."""
    family = families(style)[role]
    players: dict[str, Callable[[Scenario, random.Random], str]] = {
        "random": family.baselines["random"],
        "constant": family.baselines["constant"],
        "heuristic": family.baselines["greedy"],
        "oracle": lambda scenario, rng: family.demonstrate(scenario, rng)[-1].text,
    }
    return {
        name: [_play_role(family, s, player(s, random.Random(f"{name}/{s.key}"))) for s in scenarios]
        for name, player in players.items()
    }


def _play_role(family: Family, scenario: Scenario, text: str) -> RoleOutcome:
    """The outcome of an answer that no model wrote: no turns, no tokens."""
    trajectory = Trajectory(
        role=family.role,
        session="",
        turns=(),
        num_tool_calls=0,
        num_valid_tool_calls=0,
        ended_by="answer",
        final_text=text,
    )
    verdict = family.verify(scenario, text)
    return describe_solo(SoloEpisode(scenario=scenario, trajectory=trajectory, verdict=verdict))


TEAM_PLAYERS: Mapping[str, TablePlayer] = {
    "random": play_chair(decide_at_random),
    "greedy": play_chair(decide_richest),
    "majority": play_chair(decide_by_majority),
    "one_field": play_fields(1),
    "two_fields": play_fields(2),
    "single": play_one_head,
    **{name: play_experts(*habits) for name, habits in EXPERTS.items()},
    "reachable": play_best_habits,
    "oracle": play_optimum,
}
BASELINES = frozenset({"constant", "heuristic", *TEAM_PLAYERS})  # stages that no model plays


def play_team_baselines(
    scenarios: Sequence[TeamScenario],
    weights: TeamRewardWeights,
    stages: Sequence[str] = tuple(TEAM_PLAYERS),
    make_game: MakePlanGame = ASK_NOTHING,
) -> dict[str, list[TeamOutcome]]:
    """Stage -> plays of the random team, heuristic chair, majority vote, one head, expert teams, the optimum.

    `stages`: the players among TEAM_PLAYERS that play. `make_game`: says what experts may ask and reply.
    """
    players = dict(TEAM_PLAYERS)
    for name, habits in EXPERTS.items():
        players[name] = play_experts(*habits, make_game)
    return {
        stage: score_all(scenarios, [_play(stage, players[stage], one) for one in scenarios], weights)
        for stage in stages
    }


def _play(stage: str, player: TablePlayer, scenario: TeamScenario) -> Episode:
    """The player's episode; a random team votes by coin, any other by the book."""
    rng = random.Random(f"{stage}/{scenario.key}")
    play = player(scenario, rng)
    if stage != "random":
        return write_episode(scenario, play)
    coins = {seat: f'{{"vote": "{rng.choice(("accept", "object"))}"}}' for seat in scenario.seats}
    return write_episode(scenario, play, votes=coins)


def write_episode(scenario: TeamScenario, play: TablePlay, votes: Mapping[str, str] | None = None) -> Episode:
    """The play as an episode; votes by the book where none are given."""
    reports = {seat: report.model_dump_json() for seat, report in play.reports.items()}
    asked = [
        Question(ask=AskMessage(ask=ask).model_dump_json(), reply=reply.model_dump_json())
        for ask, reply in play.asked
    ]
    return book_episode(scenario, reports, play.decision.model_dump_json(), votes, asked)


def unplayed_episode(
    scenario: TeamScenario, reports: Mapping[str, str], decision: str = "", asked: Sequence[Question] = ()
) -> Episode:
    """Return an episode of these texts without votes, which nobody played."""
    return Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=dict(reports),
        decision=decision,
        votes={},
        asked=tuple(asked),
    )


def book_episode(
    scenario: TeamScenario,
    reports: Mapping[str, str],
    decision: str,
    votes: Mapping[str, str] | None = None,
    asked: Sequence[Question] = (),
) -> Episode:
    """Return an episode of these texts; votes that are not given are by the book."""
    episode = unplayed_episode(scenario, reports, decision, asked)
    read = read_episode(scenario, episode)
    escalated = read.decision is not None and read.decision.escalate
    by_book = {
        seat: best_vote(scenario, seat, read.plan, escalated=escalated).model_dump_json()
        for seat in scenario.seats
    }
    return replace(episode, votes={**by_book, **(votes or {})})


def read_table(scenario: TeamScenario, reports: Mapping[str, str]) -> Table:
    """The checked reports of these texts; a seat whose report cannot be read has None."""
    return read_episode(scenario, unplayed_episode(scenario, reports)).table


async def play_alone(
    scenarios: Sequence[TeamScenario],
    *,
    engine: Engine,
    chat: Chat,
    temperature: float,
    max_completion_tokens: int,
    stream: str,
    style: Style,
    policy: str = RECONCILER,
    max_turns: int = MAX_TURNS,
    max_total_tokens: int | None = None,
    first_place: int = 0,
) -> list[Episode]:
    """One plan per scenario by one agent that sees all; its reports offer what the plan buys.

    A transcript that reaches `max_total_tokens`, read and written, ends without a plan.
    """
    sampling = Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens)

    async def play(place: int, scenario: TeamScenario) -> Episode:
        game = SingleGame(scenario, style)
        role = game.prompt_role
        agent = Agent(
            role=role,
            policy=policy,
            engine=engine,
            chat=chat,
            sampling=sampling,
            session=f"{stream}/{temperature}/alone/{place}/{scenario.key}",
            call_tool=game.call_tool if role.tools else None,
            max_turns=max_turns,
            limits=AgentLimits(total_tokens=max_total_tokens),
        )
        episode = write_alone(scenario, await agent.answer(game.write_brief()))
        return replace(episode, trajectories={RECONCILER: agent.trajectory()})

    return await run_all(play(place, scenario) for place, scenario in enumerate(scenarios, first_place))


def write_alone(scenario: TeamScenario, text: str) -> Episode:
    """The plan of the text as an episode, votes by the book; a text that is no plan is no decision."""
    try:
        reports, decision = SingleGame(scenario).read(text)
    except AnswerError:
        return book_episode(scenario, {}, text)
    written = {seat: report.model_dump_json() for seat, report in reports.items()}
    return book_episode(scenario, written, decision.model_dump_json())
