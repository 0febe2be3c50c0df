"""A run's result in words: a conclusion in one sentence, key figures, and findings, losses included."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evaluation.summary.gates import failed_gates, unjudged_gates
from evaluation.summary.run_table import TEAM_TITLES, role_title, way_of_play

Tone = Literal["good", "bad", "neutral"]
SINGLES = ("single", "single_sft", "single_grpo")  # stages of a player that sees every brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One number with its meaning.

    Example: Card(value="9 of 9", label="gates passed", note="none failed", tone="good")
    """

    value: str
    label: str
    note: str
    tone: Tone


def write_conclusion(summary: Mapping[str, Any]) -> tuple[str, Tone]:
    """Return the verdict in one sentence, by the furthest stage that was run."""
    team, change = summary["team"], _team_change(summary, "marl-grpo")
    if change is not None:
        scores = f"team reward {team['grpo']['mean']:.2f} to {team['marl']['mean']:.2f}"
        tone = _tone(change)
        words = {"good": "made the team better", "bad": "made the team worse"}
        return f"Joint training {words.get(tone, 'made no measurable difference')}: {scores}.", tone
    for after, before, verb in (("grpo", "sft", "GRPO"), ("sft", "untrained", "SFT")):
        changes = _role_changes(summary, f"{after}-{before}")
        if changes:
            num_better = sum(change["low"] > 0 for change in changes.values())
            return f"{verb} made {num_better} of {len(changes)} roles better.", "good" if num_better == len(
                changes
            ) else "neutral"
    return "Nothing was trained in this run: baselines only.", "neutral"


def make_cards(summary: Mapping[str, Any]) -> list[Card]:
    """Return the numbers that a reader wants first; a stage that was not run has no card."""
    cards = []
    team_change = _team_change(summary, "marl-grpo")
    if team_change is not None:
        cards.append(
            Card(
                value=f"{team_change['mean']:+.3f}",
                label="team reward, change by joint training",
                note=_span(team_change),
                tone=_tone(team_change),
            )
        )
    for name, label in (
        ("marl-heuristic", "roles above their rule of thumb"),
        ("grpo-sft", "roles better after GRPO"),
        ("sft-untrained", "roles better after SFT"),
    ):
        changes = _role_changes(summary, name)
        if changes:
            num_better = sum(change["low"] > 0 for change in changes.values())
            cards.append(
                Card(
                    value=f"{num_better} of {len(changes)}",
                    label=label,
                    note=f"mean change {_mean(change['mean'] for change in changes.values()):+.3f}",
                    tone="good" if num_better == len(changes) else "neutral",
                )
            )
    seeds = summary.get("seeds") or [summary]
    failed, unjudged = failed_gates(summary), unjudged_gates(summary)
    num_gates = sum(len(one["gates"]) for one in seeds) - len(unjudged)
    note = f"failed: {', '.join(failed)}" if failed else "none failed"
    if unjudged:
        note += f"; {len(unjudged)} not judged: too few scenarios"
    cards.append(
        Card(
            value=f"{num_gates - len(failed)} of {num_gates}",
            label="gates passed" if len(seeds) == 1 else f"gates passed over {len(seeds)} seeds",
            note=note,
            tone="bad" if failed else "neutral" if unjudged else "good",
        )
    )
    cards.append(
        Card(
            value=f"{summary['wall_s'] / 60:.1f} min", label="wall time, all stages", note="", tone="neutral"
        )
    )
    return cards


def list_findings(summary: Mapping[str, Any]) -> list[str]:
    """State the findings, one sentence each; controls and losses included."""
    findings = (
        _sft_finding(summary),
        _heuristic_finding(summary),
        _grpo_finding(summary),
        _control_finding(summary),
        _team_finding(summary),
        _single_finding(summary),
        _drift_finding(summary),
        _agreement_finding(summary),
    )
    return [finding for finding in findings if finding]


def _sft_finding(summary: Mapping[str, Any]) -> str | None:
    changes = _role_changes(summary, "sft-untrained")
    if not changes:
        return None
    sections = [summary["roles"][role] for role in changes]
    before, after = (_mean(section[stage]["mean"] for section in sections) for stage in ("untrained", "sft"))
    return f"SFT on the oracle's demonstrations takes the mean role score from {before:.2f} to {after:.2f}."


def _heuristic_finding(summary: Mapping[str, Any]) -> str | None:
    changes = _role_changes(summary, "marl-heuristic")
    if not changes:
        return None
    num_above = sum(change["low"] > 0 for change in changes.values())
    gain = _mean(change["mean"] for change in changes.values())
    return (
        f"After joint training {num_above} of {len(changes)} roles are above the rule of thumb of their"
        f" family; the mean difference is {gain:+.2f}."
    )


def _grpo_finding(summary: Mapping[str, Any]) -> str | None:
    changes = _role_changes(summary, "grpo-sft")
    if not changes:
        return None
    better = [role for role, change in changes.items() if change["low"] > 0]
    worse = [role for role, change in changes.items() if change["high"] < 0]
    finding = (
        f"GRPO on the verified reward raises {len(better)} of {len(changes)} roles above their SFT policy"
    )
    if worse:
        finding += f" and lowers {_names(worse)}"
    best = max(changes, key=lambda role: changes[role]["mean"])
    return f"{finding}; the largest change is {role_title(best)}, {_said(changes[best])}."


def _control_finding(summary: Mapping[str, Any]) -> str | None:
    if not _role_changes(summary, "grpo-sft"):
        return None
    changes = _role_changes(summary, "grpo-sft_more")
    if not changes:
        return "The control (SFT on as many transcripts as GRPO) was not run: more SFT might do as well."
    better = [role for role, change in changes.items() if change["low"] > 0]
    worse = [role for role, change in changes.items() if change["high"] < 0]
    finding = f"Against SFT on as many transcripts, GRPO is better in {len(better)} of {len(changes)} roles"
    return finding + (f" and worse in {_names(worse)}." if worse else ".")


def _team_finding(summary: Mapping[str, Any]) -> str | None:
    team, change = summary["team"], _team_change(summary, "marl-grpo")
    if change is None:
        return None
    finding = f"On joint episodes the team reward moves by {_said(change)} {way_of_play(summary)}"
    greedy = _team_change(summary, "marl-grpo_greedy")
    finding += f" and by {_said(greedy)} greedy." if greedy else "."
    if "oracle_common" in team:
        finding += f" Experts of mixed habits score {team['oracle_common']['mean']:.2f}"
        against = _team_change(summary, "marl-oracle_common")
        finding += f" (the trained team against them: {_said(against)})" if against else ""
        best = team.get("oracle_best")
        finding += f"; those of the best habits {best['mean']:.2f}." if best else "."
    return finding


def _single_finding(summary: Mapping[str, Any]) -> str | None:
    """Set the trained team beside the players that see every seat's brief at once."""
    team = summary["team"]
    stage = next((name for name in ("marl", "grpo", "sft") if name in team), None)
    singles = [name for name in SINGLES if name in team]
    if stage is None or not singles:
        return None
    finding = f"The {TEAM_TITLES[stage]} team, in which no seat sees it all, earns {team[stage]['mean']:.2f}"
    for name in singles:
        change = _team_change(summary, f"{stage}-{name}")
        finding += f"; {TEAM_TITLES[name]}: {team[name]['mean']:.2f}"
        finding += f" (the team against it: {_said(change)})" if change else ""
    return f"{finding}."


def _drift_finding(summary: Mapping[str, Any]) -> str | None:
    changes = _role_changes(summary, "marl-grpo")
    if not changes:
        return None
    most = min(changes, key=lambda role: changes[role]["mean"])
    if changes[most]["mean"] >= 0:
        return "No role's own score falls through joint training."
    return f"The largest own-score loss through joint training: {role_title(most)}, {_said(changes[most])}."


def _agreement_finding(summary: Mapping[str, Any]) -> str | None:
    before, after = (summary["team"].get(stage, {}).get("agreement_when_wrong") for stage in ("grpo", "marl"))
    if before is None or after is None:
        return None
    return (
        f"Of decisions that are worth nothing, specialists accept {100 * before:.0f} % before joint training "
        f"and {100 * after:.0f} % after it."
    )


def _team_change(summary: Mapping[str, Any], name: str) -> Mapping[str, float] | None:
    change: Mapping[str, float] | None = summary["team"].get("paired", {}).get(name)
    return change


def _role_changes(summary: Mapping[str, Any], name: str) -> dict[str, Mapping[str, float]]:
    return {
        role: section["paired"][name]
        for role, section in summary["roles"].items()
        if name in section.get("paired", {})
    }


def _tone(change: Mapping[str, float]) -> Tone:
    if change["low"] > 0:
        return "good"
    return "bad" if change["high"] < 0 else "neutral"


def _said(change: Mapping[str, float]) -> str:
    return f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"


def _span(change: Mapping[str, float]) -> str:
    return f"95 % interval {change['low']:+.3f} to {change['high']:+.3f}"


def _names(roles: list[str]) -> str:
    return ", ".join(role_title(role) for role in roles)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)
