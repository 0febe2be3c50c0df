"""Prints a governed episode on a terminal: reports, proposals, rulings, execution."""

from collections.abc import Iterator, Mapping
from typing import Any

from evaluation.minutes.transcript import readable, visible
from simulator.governance.gate.approvals import Proposal
from simulator.governance.runner import GovernedEpisode


def render_governed(episode: GovernedEpisode) -> str:
    """One episode as plain text; nothing in it can move the cursor."""
    state = episode.state
    lines = [f"{episode.case_key}  {episode.status}"]
    if episode.error is not None:
        lines.append(f"  stopped: {episode.error}")
    for precedent in state["precedents"]:
        lines.append(f"  recalls {precedent['case']}: {precedent['option']}, {precedent['status']}")
    for role, said in state["reports"].items():
        lines.append(f"  {role} reports: {_line(said['text'])}")
    lines += _tell_log(episode)
    for attempt in state["history"]:
        kpis = " ".join(f"{role} {kpi}" for role, kpi in attempt["kpis"].items())
        shock = f", {attempt['shock']}" if attempt["shock"] else ""
        lines.append(f"  attempt {attempt['attempt'] + 1}: option {attempt['option']}, KPIs {kpis}{shock}")
    if state["proposal"] is not None:
        lines.append(_tell_proposal(Proposal.model_validate(state["proposal"])))
    return "\n".join(map(visible, lines))


def _tell_proposal(proposal: Proposal) -> str:
    return (
        f"  last proposal: option {proposal.option}, {proposal.decision_type}, "
        f"risk {proposal.risk_score} of 12, accountable {proposal.accountable}, digest {proposal.digest[:12]}"
    )


def _tell_log(episode: GovernedEpisode) -> Iterator[str]:
    for superstep, kind, body in episode.trace:
        if superstep < 0:
            yield f"  {kind}: {_spell(body)}"


def _spell(body: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in body.items() if name != "digest" and value not in ("", None, [])}
    return ", ".join(f"{name} {value}" for name, value in kept.items()) or body.get("digest", "")[:12]


def _line(text: str) -> str:
    return " | ".join(readable(text).splitlines())
