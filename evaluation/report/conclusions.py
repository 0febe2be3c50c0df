"""A run's result in words: a conclusion in one sentence, key figures, and findings, losses included."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evaluation.summary.gates import failed_gates, unjudged_gates
from evaluation.summary.run_tables import way_of_play
from evaluation.summary.tables import TEAM_TITLES, percent, role_title

Tone = Literal["good", "bad", "neutral"]
Summary = Mapping[str, Any]
Change = Mapping[str, float]
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


@dataclass(frozen=True, slots=True)
class _RoleChanges:
    """The roles' paired changes of one comparison. Example: _RoleChanges({"cto": {...}}).better == ["cto"]"""

    by_role: Mapping[str, Change]

    @property
    def better(self) -> list[str]:
        return [role for role, change in self.by_role.items() if change["low"] > 0]

    @property
    def worse(self) -> str:
        return ", ".join(role_title(role) for role, change in self.by_role.items() if change["high"] < 0)

    @property
    def share(self) -> str:
        return f"{len(self.better)} of {len(self.by_role)}"

    @property
    def mean(self) -> float:
        return statistics.fmean(change["mean"] for change in self.by_role.values())

    @property
    def tone(self) -> Tone:
        return "good" if len(self.better) == len(self.by_role) else "neutral"

    def say(self, role: str) -> str:
        return f"{role_title(role)}, {_said(self.by_role[role])}"


def _role_changes(summary: Summary, name: str) -> _RoleChanges | None:
    found = {
        role: section["paired"][name]
        for role, section in summary["roles"].items()
        if name in section.get("paired", {})
    }
    return _RoleChanges(found) if found else None


def _team_change(summary: Summary, name: str) -> Change | None:
    change: Change | None = summary["team"].get("paired", {}).get(name)
    return change


def _tone(change: Change) -> Tone:
    if change["low"] > 0:
        return "good"
    return "bad" if change["high"] < 0 else "neutral"


def _said(change: Change) -> str:
    return f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"


def write_conclusion(summary: Summary) -> tuple[str, Tone]:
    """Return the verdict in one sentence, by the furthest stage that was run."""
    team, change = summary["team"], _team_change(summary, "marl-grpo")
    if change is not None:
        scores = f"team reward {team['grpo']['mean']:.2f} to {team['marl']['mean']:.2f}"
        tone = _tone(change)
        words = {"good": "made the team better", "bad": "made the team worse"}
        return f"Joint training {words.get(tone, 'made no measurable difference')}: {scores}.", tone
    for name, verb in (("grpo-sft", "GRPO"), ("sft-untrained", "SFT")):
        if changes := _role_changes(summary, name):
            return f"{verb} made {changes.share} roles better.", changes.tone
    return "Nothing was trained in this run: baselines only.", "neutral"


def make_cards(summary: Summary) -> list[Card]:
    """Return the numbers that a reader wants first; a stage that was not run has no card."""
    cards = []
    if gain := _team_change(summary, "marl-grpo"):
        cards.append(
            Card(
                value=f"{gain['mean']:+.3f}",
                label="team reward, change by joint training",
                note=f"95 % interval {gain['low']:+.3f} to {gain['high']:+.3f}",
                tone=_tone(gain),
            )
        )
    stage, singles = _find_singles(summary)
    if stage is not None and singles:
        best = max(singles, key=lambda name: summary["team"][name]["mean"])
        card = Card(
            value=f"{summary['team'][stage]['mean']:.2f} / {summary['team'][best]['mean']:.2f}",
            label="team reward of the team / of one player that sees all facts",
            note=f"{TEAM_TITLES[stage]} / {TEAM_TITLES[best]}",
            tone="neutral",
        )
        cards.append(card)
    for name, label in (
        ("marl-heuristic", "roles above their rule of thumb"),
        ("grpo-sft", "roles better after GRPO"),
        ("sft-untrained", "roles better after SFT"),
    ):
        if changes := _role_changes(summary, name):
            note = f"mean change {changes.mean:+.3f}"
            cards.append(Card(value=changes.share, label=label, note=note, tone=changes.tone))
    seeds = summary.get("seeds") or [summary]
    failed, unjudged = failed_gates(summary), unjudged_gates(summary)
    num_gates = sum(len(one["gates"]) for one in seeds) - len(unjudged)
    note = f"failed: {', '.join(failed)}" if failed else "none failed"
    if unjudged:
        note += f"; {len(unjudged)} not judged: too few scenarios"
    label = "gates passed" if len(seeds) == 1 else f"gates passed over {len(seeds)} seeds"
    tone: Tone = "bad" if failed else "neutral" if unjudged else "good"
    value = f"{num_gates - len(failed)} of {num_gates}"
    cards.append(Card(value=value, label=label, note=note, tone=tone))
    minutes = f"{summary['wall_s'] / 60:.1f} min"
    return [*cards, Card(value=minutes, label="wall time, all stages", note="", tone="neutral")]


def list_findings(summary: Summary) -> list[str]:
    """State the findings, one sentence each; controls and losses included."""
    return [
        *_say_roles(summary),
        *_say_team(summary),
        *_say_singles(summary),
        *_say_drift(summary),
        *_say_agreement(summary),
    ]


def _say_roles(summary: Summary) -> list[str]:
    said = []
    if sft := _role_changes(summary, "sft-untrained"):
        sections = [summary["roles"][role] for role in sft.by_role]
        before, after = (
            statistics.fmean(section[stage]["mean"] for section in sections) for stage in ("untrained", "sft")
        )
        said.append(
            f"SFT on the oracle's demonstrations takes the mean role score from {before:.2f} to {after:.2f}."
        )
    if above := _role_changes(summary, "marl-heuristic"):
        said.append(
            f"After joint training {above.share} roles are above the rule of thumb of their"
            f" family; the mean difference is {above.mean:+.2f}."
        )
    if grpo := _role_changes(summary, "grpo-sft"):
        lowered = f" and lowers {grpo.worse}" if grpo.worse else ""
        best = max(grpo.by_role, key=lambda role: grpo.by_role[role]["mean"])
        said.append(
            f"GRPO on the verified reward raises {grpo.share} roles above their SFT policy{lowered};"
            f" the largest change is {grpo.say(best)}."
        )
        if control := _role_changes(summary, "grpo-sft_more"):
            worse = f" and worse in {control.worse}" if control.worse else ""
            said.append(
                f"Against SFT on as many transcripts, GRPO is better in {control.share} roles{worse}."
            )
        else:
            said.append(
                "The control (SFT on as many transcripts as GRPO) was not run: more SFT might do as well."
            )
    return said


def _say_team(summary: Summary) -> list[str]:
    team, change = summary["team"], _team_change(summary, "marl-grpo")
    if change is None:
        return []
    finding = f"On joint episodes the team reward moves by {_said(change)} {way_of_play(summary)}"
    greedy = _team_change(summary, "marl-grpo_greedy")
    finding += f" and by {_said(greedy)} greedy." if greedy else "."
    if "oracle_common" in team:
        finding += f" Experts of mixed habits score {team['oracle_common']['mean']:.2f}"
        against = _team_change(summary, "marl-oracle_common")
        finding += f" (the trained team against them: {_said(against)})" if against else ""
        best = team.get("oracle_best")
        finding += f"; those of the best habits {best['mean']:.2f}." if best else "."
    return [finding]


def _find_singles(summary: Summary) -> tuple[str | None, list[str]]:
    """Return the team's last stage, and the players that see every seat's brief at once."""
    team = summary["team"]
    stage = next((name for name in ("marl", "grpo", "sft") if name in team), None)
    return stage, [name for name in SINGLES if name in team]


def _say_singles(summary: Summary) -> list[str]:
    """Set the trained team beside the players that see every seat's brief at once."""
    team, (stage, singles) = summary["team"], _find_singles(summary)
    if stage is None or not singles:
        return []
    finding = f"The {TEAM_TITLES[stage]} team, in which no seat sees it all, earns {team[stage]['mean']:.2f}"
    for name in singles:
        change = _team_change(summary, f"{stage}-{name}")
        finding += f"; {TEAM_TITLES[name]}: {team[name]['mean']:.2f}"
        finding += f" (the team against it: {_said(change)})" if change else ""
    return [f"{finding}."]


def _say_drift(summary: Summary) -> list[str]:
    changes = _role_changes(summary, "marl-grpo")
    if changes is None:
        return []
    most = min(changes.by_role, key=lambda role: changes.by_role[role]["mean"])
    if changes.by_role[most]["mean"] >= 0:
        return ["No role's own score falls through joint training."]
    return [f"The largest own-score loss through joint training: {changes.say(most)}."]


def _say_agreement(summary: Summary) -> list[str]:
    before, after = (summary["team"].get(stage, {}).get("agreement_when_wrong") for stage in ("grpo", "marl"))
    if before is None or after is None:
        return []
    return [
        f"Of decisions that are worth nothing, specialists accept {percent(before)} before joint training "
        f"and {percent(after)} after it."
    ]
