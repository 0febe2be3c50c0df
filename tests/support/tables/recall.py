"""Recall: what the closed cases of a company tell about the next one, and experts who make use of it.

Claims are by the figures as stated, so recall changes which part is offered, not what is claimed of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from roles.team import Report
from scenarios.company.optimum import part_of
from scenarios.company.records import CompanyCase
from scenarios.execution import (
    FAIL_SHARE,
    LOSSES,
    ActualEffect,
    Trait,
    apply_traits,
    carry_out,
    draw_world,
    find_group,
    list_groups,
    open_situation,
    value_situation,
)
from scenarios.team import TeamScenario, seat_team
from scenarios.team.experts import best_decision, choose_part, make_offer
from scenarios.team.offers import check_report, is_needed, is_vetoed
from scenarios.team.value import funded_plan

Beliefs = Mapping[tuple[str, str], int]  # (seat, group of upgrades) -> percent of the stated effect lost


def believe_nothing(case: CompanyCase) -> Beliefs:
    """Every upgrade brings what is stated."""
    return {}


def believe_average(case: CompanyCase) -> Beliefs:
    """Every upgrade that can fall short brings what it brings on average over all companies."""
    loss = round(FAIL_SHARE * fmean(LOSSES))
    return dict.fromkeys(list_groups(case.sector), loss)


def learn(beliefs: Beliefs, actuals: Iterable[ActualEffect]) -> Beliefs:
    """The beliefs with what execution has shown: of several figures of one group their mean."""
    shown: dict[tuple[str, str], list[int]] = {}
    for actual in actuals:
        shown.setdefault((actual["seat"], find_group(actual["seat"], actual["upgrade"])), []).append(
            actual["lost"]
        )
    return {**beliefs, **{group: round(fmean(lost)) for group, lost in shown.items()}}


def imagine(case: CompanyCase, beliefs: Beliefs) -> CompanyCase:
    """The case as somebody of these beliefs expects it to be."""
    return apply_traits(
        case, [Trait(seat=seat, group=group, loss=loss) for (seat, group), loss in beliefs.items() if loss]
    )


def best_imagined_report(case: TeamScenario, seat: str, habit: str, beliefs: Beliefs) -> Report:
    """Report as an expert of the habit and of these beliefs: parts chosen as it expects them to turn out.

    Figures are claimed as stated; a part that breaks the limit as stated is not offered.
    """
    imagined = seat_team(imagine(case.case, beliefs), case.offers_per_option) if beliefs else case
    offers = []
    for option in case.options:
        chosen = choose_part(imagined, seat, option, habit)
        stated = None if chosen is None else part_of(case.case, seat, option, chosen.choice)
        if stated is not None and stated.keeps_limit:
            offers.append(make_offer(stated))
    needs = [option for option in case.options if is_needed(case, seat, option)]
    veto = [option for option in case.options if is_vetoed(case, seat, option)]
    return Report(offers=offers, needs=needs, veto=veto)


def play_sequence(
    cases: Sequence[TeamScenario],
    *,
    habit: str,
    funding: str,
    believe: Callable[[CompanyCase], Beliefs],
    has_recall: bool,
    world: int = 0,
) -> list[float]:
    """V in hindsight of one plan on each of a company's cases in turn, by experts; no shocks.

    `believe` is what they expect of a company that they know nothing of. With recall they learn from the
    upgrades that were bought in earlier cases. A case that is handed over is worth 0.
    """
    values, seen = [], list[ActualEffect]()
    for case in cases:
        beliefs = learn(believe(case.case), seen if has_recall else [])
        table = {
            seat: check_report(case, seat, best_imagined_report(case, seat, habit, beliefs))
            for seat in case.seats
        }
        decision = best_decision(case.public, table, funding)
        if decision.escalate:
            values.append(0.0)
            continue
        drawn = draw_world(case.case, seed=world, shock_share=0.0, with_traits=True)
        after, outcome = carry_out(drawn, open_situation(drawn), funded_plan(table, decision))
        values.append(value_situation(drawn, after))
        seen += outcome.actuals
    return values
