"""V of the team reward as a subject: ReconcileGPT's family, its score by a second method, shortcuts past it.

ReconcileGPT reads reports in any order with two offers per option and seat, the optimum's parts among them.
Parts are measured again and plans enumerated anew. False claims of seats are attacked in `team_cheats`.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from evaluation.audit.answers import Answer, FieldSpec, Subject
from evaluation.audit.text_solvers import PricedPart
from evaluation.scoring.baselines import decide_at_random, decide_richest, play_optimum
from roles.base import AnswerError
from roles.team import NO_OPTION, RECONCILER, Decision
from scenarios.base import Family, Scenario, Split, Step, ToolCall, ToolError, Verdict, rejected
from scenarios.company.domain import Terms
from scenarios.company.domains import DOMAINS
from scenarios.company.optimum import best_over_money
from scenarios.team.experts import ASKED_HABITS, best_decision, best_report, sample_habit
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, Table, TabledOffer, check_report, dump_report, offers_on
from scenarios.team.reading import read_decision
from scenarios.team.scenario import TeamScenario, generate
from scenarios.team.value import decision_value

NAME = "team"
NUM_OFFERS = 2  # per option and seat, at most

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScenario(Scenario):
    """A team case with the reports on the table."""

    case: TeamScenario
    table: Table


def _on_table(use: Callable[..., T]) -> Callable[..., T]:
    """Return the function as one of any scenario: this family is given none but those that it made."""
    return use


@lru_cache(maxsize=1024)
def _draw_case(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    return generate(split, seed, index, difficulty, NUM_OFFERS)


def _generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    case = _draw_case(split, seed, index, difficulty)
    table = _draw_table(case, random.Random(f"audit/value/{case.key}"))
    game = PlanGame(case=case, style="full")
    reports = {name: None if report is None else dump_report(report) for name, report in table.items()}
    return TableScenario(
        family=NAME,
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=RECONCILER,
        brief=f"{game.prompt_role(RECONCILER).mandate}\n{game.write_decision_brief(reports)}",
        facts={"options": list(case.options)},
        truth=case.truth,
        optimal_tool_calls=0,
        case=case,
        table=table,
    )


def _draw_table(case: TeamScenario, rng: random.Random) -> dict[str, CheckedReport | None]:
    """Reports of experts of mixed habits, whose shares do not follow what teams learn from."""
    sides = [
        {seat: best_report(case, seat, sample_habit(rng, ASKED_HABITS)) for seat in case.seats}
        for _ in range(NUM_OFFERS)
    ]
    table: dict[str, CheckedReport | None] = {}
    for seat, report in play_optimum(case, rng).reports.items():
        offers = list(report.offers)
        for offer in [offer for side in sides for offer in side[seat].offers]:
            standing = [known for known in offers if known.option == offer.option]
            if len(standing) < NUM_OFFERS and offer not in standing:
                offers.append(offer)
        rng.shuffle(offers)
        table[seat] = check_report(case, seat, report.model_copy(update={"offers": offers}))
    return table


def _price_again(case: TeamScenario, seat: str, option: str) -> Sequence[PricedPart]:
    """Every part of the seat on the option by the domain's second method."""
    return _price_drawn(case.split, case.seed, case.index, case.difficulty, seat, option)


@lru_cache(maxsize=20_000)
def _price_drawn(
    split: Split, seed: int, index: int, difficulty: int, seat: str, option: str
) -> Sequence[PricedPart]:
    case, domain = _draw_case(split, seed, index, difficulty).case, DOMAINS[seat]
    structure, terms = case.structures[seat][option], Terms(rates=case.rates[seat], limits=case.limits[seat])
    before = domain.value(terms, domain.measure_again(structure, ())[1])
    priced = []
    for choice in domain.list_choices(structure):
        cost, figures = domain.measure_again(structure, choice)
        worth = domain.value(terms, figures) - before
        priced.append(PricedPart(choice, cost, worth, domain.keeps_limit(terms, figures)))
    return priced


def _find_best(case: TeamScenario) -> int | None:
    """k$ of the optimum over parts that are measured again; None where nothing can be run."""
    found = []
    for option, facts in case.public.options.items():
        priced = [_price_again(case, seat, option) for seat in case.seats]
        offered = [[(part.cost, part.worth) for part in parts if part.keeps_limit] for parts in priced]
        found.append(best_over_money(facts.base, offered, case.public.budget))
    return max((best[0] for best in found if best is not None), default=None)


def _list_plan_worths(
    case: TeamScenario, buy: Callable[[Sequence[PricedPart]], PricedPart | None]
) -> list[int | None]:
    """k$ of every option where each seat buys by itself; None where a seat cannot or the money runs out."""
    worths: list[int | None] = []
    for option, facts in case.public.options.items():
        bought = [buy(_price_again(case, seat, option)) for seat in case.seats]
        parts = [part for part in bought if part is not None]
        is_open = len(parts) == len(bought) and sum(part.cost for part in parts) <= case.public.budget
        worths.append(facts.base + sum(part.worth for part in parts) if is_open else None)
    return worths


def _find_blind(case: TeamScenario) -> Fraction:
    """k$ of a blind plan: per option each seat buys its best part within an equal share of the budget.

    A seat for which all that keeps its limit costs more buys the cheapest of it. Options that cannot be run
    so count as the least of the others; where none can, the blind plan is the poorest that can be run.
    """
    share = case.public.budget // len(case.seats)

    def buy(parts: Sequence[PricedPart]) -> PricedPart | None:
        keeping = [part for part in parts if part.keeps_limit]
        within = [part for part in keeping if part.cost <= share]
        if within:
            return max(within, key=lambda part: (part.worth, -part.cost))
        return min(keeping, key=lambda part: (part.cost, -part.worth), default=None)

    def buy_poorest(parts: Sequence[PricedPart]) -> PricedPart | None:
        keeping = (part for part in parts if part.keeps_limit)
        return min(keeping, key=lambda part: (part.cost, part.worth), default=None)

    worths = _list_plan_worths(case, buy)
    known = [worth for worth in worths if worth is not None]
    if known:
        return Fraction(sum(min(known) if worth is None else worth for worth in worths), len(worths))
    return Fraction(min(worth for worth in _list_plan_worths(case, buy_poorest) if worth is not None))


def _find_value(case: TeamScenario, option: str, choices: Mapping[str, Sequence[str]]) -> float:
    """V of an option with these choices by seat, measured again; 0 where nothing can be run."""
    best = _find_best(case)
    if best is None:
        return 0.0
    cost, worth = 0, case.public.options[option].base
    for seat in case.seats:
        wanted = sorted(choices.get(seat, ()))
        part = next(part for part in _price_again(case, seat, option) if sorted(part.choice) == wanted)
        if not part.keeps_limit:
            return 0.0
        cost, worth = cost + part.cost, worth + part.worth
    if cost > case.public.budget:
        return 0.0
    blind = _find_blind(case)
    return max(0.0, min(1.0, float((worth - blind) / (best - blind))))


def _score(one: TableScenario, answer: Answer) -> float:
    """V of the plan from structures measured again."""
    if answer["option"] == NO_OPTION or answer["escalate"]:
        is_right = answer["option"] == NO_OPTION and answer["escalate"] and not answer["fund"]
        return float(is_right and _find_best(one.case) is None)
    labels = {offer.label: offer for offer in offers_on(one.table, answer["option"])}
    if not set(answer["fund"]) <= set(labels):
        return 0.0
    choices = {labels[label].seat: labels[label].choice for label in answer["fund"]}
    if len(choices) < len(answer["fund"]):
        return 0.0
    return _find_value(one.case, answer["option"], choices)


def _verify(one: TableScenario, text: str) -> Verdict:
    """V of the team reward, as if it were a verdict."""
    try:
        decision = read_decision(one.case.public, one.table, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    value = decision_value(one.case, one.table, decision)
    return Verdict(
        reward=value,
        parts={"value": value},
        exact=value == 1.0,
        feasible=value > 0,
        explanation=f"value {value:.2f}",
        failure=None if value == 1.0 else "suboptimal",
    )


def _solve(one: TableScenario) -> Answer:
    answer: Answer = best_decision(one.case.public, one.table, "exact").model_dump(mode="json")
    return answer


def _certify(one: TableScenario) -> tuple[float, float]:
    """Worth of the optimum as stated, and from structures measured again; 0 where nothing can be run."""
    best = one.case.optimum
    return float(best.worth if best else 0), float(_find_best(one.case) or 0)


def _refuse_tools(_scenario: Scenario, _call: ToolCall) -> str:
    raise ToolError("no tools here")  # what is audited is the answer


def _options(one: TableScenario) -> list[str]:
    return [*one.case.options, NO_OPTION]


def _list_labels(one: TableScenario) -> list[str]:
    reports = [report for report in one.table.values() if report is not None]
    return list(dict.fromkeys(offer.label for report in reports for offer in report.offers))


def _decide(option: str, fund: Sequence[str] = ()) -> Answer:
    is_none = option == NO_OPTION
    return {"option": option, "fund": list(fund), "escalate": is_none, "conflicts": [], "reason": ""}


def _offered(one: TableScenario, option: str) -> dict[str, int]:
    """Return label -> worth of every seat's first offer on the option."""
    first: dict[str, TabledOffer] = {}
    for offer in offers_on(one.table, option):
        first.setdefault(offer.seat, offer)
    return {offer.label: offer.worth for offer in first.values()}


def _favourite(one: TableScenario, combine: Callable[[dict[str, int]], int]) -> str:
    """Return the option of the greatest base plus what its first offers are worth, combined."""
    base = one.case.public.base
    return max(base, key=lambda option: base[option] + combine(_offered(one, option)))


def _decide_richest_whole(one: TableScenario) -> Answer:
    richest = _favourite(one, lambda offered: sum(offered.values()))
    return _decide(richest, list(_offered(one, richest)))


def _decide_one_offer(one: TableScenario) -> Answer:
    best = _favourite(one, lambda offered: max(offered.values(), default=0))
    offered = _offered(one, best)
    return _decide(best, sorted(offered, key=offered.__getitem__)[-1:])


def _play(chair: Callable[..., Decision]) -> Callable[[Scenario, random.Random], str]:
    def write(one: TableScenario, rng: random.Random) -> str:
        return chair(one.case, one.table, rng).model_dump_json()

    return _on_table(write)


TEAM_VALUE = Subject(
    family=Family(
        name=NAME,
        role=RECONCILER,
        generate=_generate,
        verify=_on_table(_verify),
        solve=_on_table(_solve),
        certify=_on_table(_certify),
        call_tool=_refuse_tools,
        demonstrate=_on_table(lambda one, _rng: (Step(text=json.dumps(_solve(one))),)),
        baselines={
            "random": _play(decide_at_random),
            "constant": _play(lambda *_: Decision(option="A", fund=[], escalate=False)),
            "greedy": _play(decide_richest),
        },
    ),
    fields={
        "option": FieldSpec(kind="id", names=_on_table(_options)),
        "fund": FieldSpec(kind="set", names=_on_table(_list_labels)),
        "escalate": FieldSpec(kind="boolean"),
        "conflicts": FieldSpec(kind="texts"),
        "reason": FieldSpec(kind="text"),
    },
    score=_on_table(_score),
    hacks={
        "always escalate": lambda _: _decide(NO_OPTION),
        "all offers on the first option": _on_table(lambda one: _decide("A", list(_offered(one, "A")))),
        "public favourite, nothing funded": _on_table(lambda one: _decide(_favourite(one, lambda _: 0))),
        "richest option, budget ignored": _on_table(_decide_richest_whole),
        "one offer, needs ignored": _on_table(_decide_one_offer),
    },
    blind_factor=2,
)
