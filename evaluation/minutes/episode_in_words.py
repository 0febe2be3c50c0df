"""Puts the records of an episode into words for its minutes: titles, outcome, calls, conflicts, scores."""

from collections.abc import Mapping, Sequence

from evaluation.minutes.transcript import NOTHING, visible
from roles.base import Role
from roles.team import Decision
from scenarios.base import ToolCall
from scenarios.team import PlayableCase, TeamScenario
from scenarios.written.written_case import FreeCase
from simulator.conflicts import Conflict
from simulator.reading import ReadEpisode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict
from simulator.tool_calls import BadToolCallError, parse_tool_calls

MAX_BRIEF_CHARS = 10_000
ENDS = {
    "turn_tokens": "the tokens of a turn",
    "total_tokens": "the tokens in total",
    "turns": "the number of turns",
    "tool_calls": "the number of tool calls",
    "failed_calls": "the number of failed calls",
}  # by limit


def find_title(case: PlayableCase) -> str:
    """Return the case's title in one line."""
    if isinstance(case, FreeCase):
        return visible(case.title)
    sector = case.sector.capitalize() if isinstance(case, TeamScenario) else "Company"
    return visible(f"{sector}: {' or '.join(option.name for option in case.public.options.values())}")


def say_outcome(case: PlayableCase, episode: Episode, decision: Decision | None) -> str:
    """Say the outcome of an episode in one sentence."""
    if episode.error is not None:
        return "The meeting broke off: an engine failed."
    if decision is None:
        return "No valid decision was reached."
    if decision.escalate:
        return "The case goes to a human."
    funded = f"{len(decision.fund)} part{'s' if len(decision.fund) != 1 else ''} funded"
    return f"Decided: {name_option(case, decision.option)} ({funded if decision.fund else 'nothing funded'})"


def name_option(case: PlayableCase, option: str) -> str:
    """Return the option with its name: "option B, the hosted switch"."""
    known = case.public.options.get(option)
    return visible(f"option {option}, {known.name}" if known else f"option {option}")


def make_cards(
    case: PlayableCase,
    read: ReadEpisode,
    conflicts: Sequence[Conflict],
    verdict: TeamVerdict | None,
    episode: Episode,
) -> list[tuple[str, str, str]]:
    """(value, what it is, tone), the most important first."""
    decision, votes = read.decision, list(read.votes.values())
    decided = "-" if decision is None else "human" if decision.escalate else decision.option
    num_hard = sum(conflict.is_hard for conflict in conflicts)
    paid = [
        offer.cost
        for report in read.table.values()
        if report is not None and decision is not None
        for offer in report.offers
        if offer.option == decision.option and offer.label in decision.fund
    ]
    return [
        (decided, "decision", ""),
        (f"{sum(paid)} of {case.public.budget}", "k$ of the budget spent", ""),
        (f"{votes.count('accept')} of {len(case.seats)}" if episode.votes else "none", "votes to accept", ""),
        (str(num_hard), "hard conflicts between reports", "bad" if num_hard else ""),
        (f"{verdict.reward:.2f}" if verdict else "-", "team reward R" if verdict else "not scored", ""),
    ]


def say_conflict(conflict: Conflict, roles: Mapping[str, Role]) -> tuple[bool, str]:
    """Return whether the conflict breaks a hard limit, and a sentence that states it."""
    who = f"{say_titles(conflict.wanted_by, roles)} {_verb('favour', conflict.wanted_by)} {conflict.option}"
    if conflict.over_budget:
        who += f", whose offers together are {conflict.over_budget} k$ over the budget"
    if not conflict.is_hard:
        return False, f"{who}."
    against = conflict.ruled_out_by
    return True, f"{who}; {say_titles(against, roles)} {_verb('rule', against)} it out."


def _verb(stem: str, subjects: Sequence[str]) -> str:
    return stem if len(subjects) > 1 else f"{stem}s"


def say_titles(names: Sequence[str], roles: Mapping[str, Role]) -> str:
    """Roles by their titles: "CTO and Risk"."""
    return join_words([roles[name].title if name in roles else visible(name) for name in names])


def join_words(words: Sequence[str]) -> str:
    """ "A, B and C"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def say_call(text: str) -> str:
    """Return a turn with a tool call as "measure(option=B, part=[spare gateway])"."""
    try:
        calls = parse_tool_calls(text)
    except BadToolCallError as error:
        return visible(f"a call that is none ({error}): {text}")
    if not calls:
        return visible(text.strip())
    return visible("; ".join(_say_one_call(call) for call in calls))


def _say_one_call(call: ToolCall) -> str:
    inside = ", ".join(f"{name}={_plain(value)}" for name, value in call.arguments.items())
    return f"{call.name}({inside})"


def _plain(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def say_formula(verdict: TeamVerdict | None, weights: TeamRewardWeights | None) -> str:
    """Return the team reward with its numbers."""
    if verdict is None or weights is None:
        return ""
    c, k, h = weights.consensus, weights.unresolved, weights.escalation
    return (
        f"R = V (1 + c C) / (1 + c) - k U - h H = {verdict.value:.3f} x (1 + {c:g} x {verdict.consensus:.3f})"
        f" / {1 + c:g} - {k:g} x {verdict.unresolved:.3f} - {h:g} x {verdict.escalation:g}"
        f" = {verdict.reward:.3f}"
    )


def measure_share(role: str, episode: Episode, roles: Mapping[str, Role]) -> tuple[str, ...]:
    """Title, policy versions, turns, tokens read and written, tool calls, how it ended."""
    path = episode.trajectories[role]
    calls = f"{path.num_valid_tool_calls} of {path.num_tool_calls}" if path.num_tool_calls else "-"
    return (
        say_titles([role], roles),
        visible(" ".join(dict.fromkeys(turn.policy_version for turn in path.turns))) or NOTHING,
        str(len(path.turns)),
        str(sum(len(turn.context_ids) for turn in path.turns)),
        str(sum(len(turn.completion_ids) for turn in path.turns)),
        calls,
        f"cut off by {ENDS[path.ended_by]}" if path.truncated else "by itself",
    )
