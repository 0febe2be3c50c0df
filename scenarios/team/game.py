"""The team's joint game of picks, flags and vetoes, as the graph plays it.

Reads what seats write and writes what passes between seats; values in and out are plain JSON.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.team import Decision, SpecialistReport
from scenarios.team.playable import PlayableCase, PublicCase
from scenarios.team.texts import decision_brief, vote_brief
from scenarios.team.verdicts import parse_decision, parse_report, parse_vote


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagGame:
    """The game on one case; it knows the options, neither facts nor truth.

    Example: FlagGame.of(generate("train", 0, 7, 2)).read_vote('{"vote": "object"}') == "object"
    """

    case: PublicCase

    @classmethod
    def of(cls, case: PlayableCase) -> "FlagGame":
        """The game on this case."""
        return cls(case=PublicCase.of(case))

    def read_report(self, text: str) -> dict[str, Any] | None:
        """The report's pick, flag and vetoes, strictly read; None for a malformed report."""
        report = parse_report(self.case, text)
        return None if report is None else report.model_dump()

    def read_decision(self, text: str) -> dict[str, Any] | None:
        """The decision's option and whether it escalates; None for a malformed decision."""
        decision = parse_decision(self.case, text)
        return None if decision is None else decision.model_dump()

    def read_vote(self, text: str) -> str | None:
        """ "accept" or "object"; None for a malformed vote."""
        return parse_vote(text)

    def write_decision_brief(
        self, reports: Mapping[str, dict[str, Any] | None], ruled_out: Collection[str] = ()
    ) -> str:
        """What ReconcileGPT decides from; an option that is ruled out looks like a vetoed one."""
        out = list(ruled_out)
        parsed = {
            role: None if report is None else SpecialistReport.model_validate(_veto_more(report, out))
            for role, report in reports.items()
        }
        return decision_brief(self.case.options, parsed)

    def write_vote_brief(self, decision: dict[str, Any] | None) -> str:
        """What a specialist votes on, after its own brief."""
        return vote_brief(None if decision is None else Decision.model_validate(decision))

    def write_objection_brief(self, objectors: Sequence[str]) -> str:
        """What ReconcileGPT reads when seats object, e.g. "Objections cost risk. Decide again."."""
        return f"Objections {' '.join(objectors)}. Decide again."


def _veto_more(report: dict[str, Any], out: list[str]) -> dict[str, Any]:
    return {**report, "veto": sorted({*report["veto"], *out})} if out else report
