"""Judges the team's draft: reports, decision and votes of the state in, a resolution out.

Beside `resolution` and the reviewer's form the only part of governance that reads what reports and decisions
hold.
"""

from roles.team import NO_OPTION, Decision, SpecialistReport
from simulator.governance.resolution import Resolution, resolve
from simulator.governance.state import FullState
from simulator.graph.state import list_objectors


def judge(state: FullState) -> Resolution:
    """Judge the state's draft, or the reviewer's own option, in plain code."""
    edited = state["edited"]
    if edited is not None:
        decision = Decision(option=edited, escalate=edited == NO_OPTION)
        return resolve(
            state["options"], read_reports(state), decision, ruled_out=state["ruled_out"], is_overruling=True
        )
    return resolve(
        state["options"],
        read_reports(state),
        read_draft(state),
        objectors=list_objectors(state),
        ruled_out=state["ruled_out"],
    )


def read_draft(state: FullState) -> Decision | None:
    """Read ReconcileGPT's last draft; None where there is none or it is malformed."""
    parsed = state["decision"] and state["decision"]["parsed"]
    return Decision.model_validate(parsed) if parsed else None


def read_reports(state: FullState) -> dict[str, SpecialistReport | None]:
    """Read the reports by seat; None for a malformed one."""
    parsed = {role: state["reports"][role]["parsed"] for role in state["briefs"]}
    return {role: value and SpecialistReport.model_validate(value) for role, value in parsed.items()}
