"""Judges the team's draft: reports, decision and votes of the state in, a resolution out.

Beside `resolution` and the reviewer's form the only part of governance that reads what reports and decisions
hold.
"""

from roles.team import Decision
from scenarios.team.offers import CheckedReport, load_table
from scenarios.team.playable import PublicCase
from simulator.governance.resolution import Resolution, decide_for, resolve
from simulator.governance.state import FullState
from simulator.graph.state import list_objectors, list_parsed


def judge(state: FullState, public: PublicCase) -> Resolution:
    """Judge the state's draft, or the reviewer's own option, in plain code."""
    table, edited = read_table(state), state["edited"]
    if edited is not None:
        decision = decide_for(public, table, edited, state["ruled_out"])
        return resolve(public, table, decision, ruled_out=state["ruled_out"], num_failures=state["attempt"])
    return resolve(
        public,
        table,
        read_draft(state),
        objectors=list_objectors(state),
        ruled_out=state["ruled_out"],
        num_failures=state["attempt"],
    )


def read_draft(state: FullState) -> Decision | None:
    """Read ReconcileGPT's last draft; None where there is none or it is malformed."""
    parsed = state["decision"] and state["decision"]["parsed"]
    return Decision.model_validate(parsed) if parsed else None


def read_table(state: FullState) -> dict[str, CheckedReport | None]:
    """Read the checked reports by seat; None for a malformed one."""
    parsed = list_parsed(state["reports"])
    return load_table({role: parsed[role] for role in state["briefs"]})
