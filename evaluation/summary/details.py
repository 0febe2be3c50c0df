"""Breaks a run's plays down: means per play, failures, reward by difficulty and sector, offers by seat.

Made of the play table alone, for the part `details` of a run's summary.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evaluation.scoring.baselines import BASELINES
from evaluation.scoring.outcomes import MODES, RoleOutcome, StagePlays, TeamOutcome
from evaluation.stats.intervals import mean_interval

CATEGORIES = ("difficulty", "sector")


def build_details(plays: Iterable[StagePlays], *, num_bootstrap: int = 2000) -> dict[str, Any]:
    """owner -> stage -> mode -> process, failures, difficulty, sector, and a team's offers and words."""
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
                section |= {"offers": offers_by_seat(rows), "words": words(rows)}
            details.setdefault(one.owner, {}).setdefault(one.stage, {})[mode] = section
    return details


def process(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, float]:
    """Means per play: turns, tokens, shares well formed, escalated, exact; of roles tool calls too."""
    numbers = {"n": float(len(outcomes))}
    for name in ("turns", "tokens", "well_formed", "escalated"):
        numbers[name] = _mean(getattr(outcome, name) for outcome in outcomes)
    roles = [outcome for outcome in outcomes if isinstance(outcome, RoleOutcome)]
    for name in ("tool_calls", "failed_calls", "truncated", "exact") if roles else ():
        numbers[name] = _mean(getattr(outcome, name) for outcome in roles)
    if not roles:
        numbers["exact"] = _mean(one.value == 1 for one in outcomes if isinstance(one, TeamOutcome))
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


def words(outcomes: Sequence[TeamOutcome]) -> dict[str, float]:
    """Mean reward, what it takes: largest context of any play, mean tokens in sequence and in all."""
    return {
        "reward": _mean(one.reward for one in outcomes),
        "context": float(max(one.context for one in outcomes)),
        "sequential": _mean(one.sequential for one in outcomes),
        "tokens": _mean(one.tokens for one in outcomes),
    }


def is_on_front(one: Mapping[str, float], others: Iterable[Mapping[str, float]]) -> bool:
    """Return whether none of the others earns as much with as few words in all three, and differs."""
    costs = ("context", "sequential", "tokens")
    return not any(
        other["reward"] >= one["reward"] and all(other[name] <= one[name] for name in costs)
        for other in others
        if other != one
    )


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)
