"""Breaks a run's plays down: means per play, failures, reward by difficulty and sector, offers by seat.

Made of the play table alone, for the part `details` of a run's summary.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import le
from typing import Any

from evaluation.scoring.baselines import BASELINES
from evaluation.scoring.outcomes import MODES, RoleOutcome, StagePlays, TeamOutcome
from evaluation.stats.intervals import mean_interval

CATEGORIES = ("difficulty", "sector")


def build_details(plays: Iterable[StagePlays], *, num_bootstrap: int = 2000) -> dict[str, Any]:
    """owner -> stage -> mode -> process, failures, difficulty, sector, and a team's offers; no baselines."""
    details: dict[str, Any] = {}
    for one in plays:
        for mode in MODES if one.stage not in BASELINES else ():
            rows: Any = one.sampled if mode == "sampled" else one.greedy
            if not rows:
                continue
            section: dict[str, Any] = {"process": process(rows), "failures": failures(rows)}
            for category in CATEGORIES:
                section[category] = break_down(rows, category, num_bootstrap)
            if isinstance(rows[0], TeamOutcome):
                section["offers"] = offers_by_seat(rows)
            details.setdefault(one.owner, {}).setdefault(one.stage, {})[mode] = section
    return details


def process(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, float]:
    """Means per play: reward, turns, tokens, shares well formed, escalated, exact; of roles tool calls too.

    Of a team also the mean tokens in sequence and the largest context of any play.
    """
    numbers = {"n": float(len(outcomes))}
    for name in ("reward", "turns", "tokens", "well_formed", "escalated"):
        numbers[name] = _mean(getattr(outcome, name) for outcome in outcomes)
    roles = [outcome for outcome in outcomes if isinstance(outcome, RoleOutcome)]
    for name in ("tool_calls", "failed_calls", "truncated", "exact") if roles else ():
        numbers[name] = _mean(getattr(outcome, name) for outcome in roles)
    teams = [outcome for outcome in outcomes if isinstance(outcome, TeamOutcome)]
    if teams:
        numbers["exact"] = _mean(one.value == 1 for one in teams)
        numbers["sequential"] = _mean(one.sequential for one in teams)
        numbers["context"] = float(max(one.context for one in teams))
    return numbers


def failures(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, int]:
    """Count the plays that each kind of failure ended, the most frequent first; exact plays are left out."""
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        if isinstance(outcome, RoleOutcome):
            kind = "cut off by a limit" if outcome.truncated else outcome.failure
        else:
            kind = _team_failure(outcome)
        if kind is not None:
            kinds[kind] += 1
    return dict(kinds.most_common())


def _team_failure(outcome: TeamOutcome) -> str | None:
    if outcome.well_formed < 1:
        return "a message that cannot be read"
    if outcome.escalation:
        return "needless escalation" if outcome.escalated else "missed escalation"
    if outcome.unresolved:
        return "breaks a hard limit"
    if outcome.value < 1:
        return "a plan that can be run, but not the best"
    return None if outcome.consensus == 1 else "best plan, wrong votes"


def break_down(
    outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome], category: str, num_bootstrap: int
) -> dict[str, dict[str, float]]:
    """Mean reward with its interval by difficulty or sector, in order of the category's values."""
    groups: dict[Any, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, category), []).append(outcome.reward)
    found = {value: mean_interval(groups[value], num_bootstrap=num_bootstrap) for value in sorted(groups)}
    return {
        str(value): {"mean": one.mean, "low": one.low, "high": one.high, "n": float(one.n)}
        for value, one in found.items()
    }


def offers_by_seat(outcomes: Sequence[TeamOutcome]) -> dict[str, dict[str, float]]:
    """Per seat: reports read (share), offers and false claims per report, plans that fund it (share)."""
    table = {}
    for seat in dict.fromkeys(seat for outcome in outcomes for seat in outcome.reports):
        heard = [one for one in outcomes if seat in one.reports]
        decided = [one.funded for one in heard if one.funded or not one.escalated]
        table[seat] = {
            "read": _mean(seat in one.offers for one in heard),
            "offers": _mean(one.offers.get(seat, 0) for one in heard),
            "false_claims": _mean(one.false_claims.get(seat, 0) for one in heard),
            "funded": _mean(seat in funded for funded in decided) if decided else 0.0,
        }
    return table


def is_on_front(one: Mapping[str, float], others: Iterable[Mapping[str, float]]) -> bool:
    """Return whether no other team earns as much with as small a context and as few tokens of both kinds.

    Each is what `process` returns; teams that are equal in all four are both on the front.
    """

    def rank(team: Mapping[str, float]) -> tuple[float, ...]:
        return -team["reward"], team["context"], team["sequential"], team["tokens"]

    own = rank(one)
    return not any(other != own and all(map(le, other, own)) for other in map(rank, others))


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)
