"""The team family, in one place: each specialist sees only its own facts, ReconcileGPT only their reports.

`team_case` draws the case and knows what a decision is worth, `team_certify` recomputes it, `team_practices`
is the experts' play and the briefs between seats (`conventions` names the practices), `team_verdicts` parses
and judges what each seat wrote, `game` hands all of it to the graph that plays a case.
"""

from scenarios.team.case import Seat, TeamScenario, decision_value, generate, with_seat
from scenarios.team.certify import certify_team
from scenarios.team.conventions import CONVENTIONS, HOUSE, SYMMETRIC, Conventions, ConventionsName
from scenarios.team.game import FlagGame
from scenarios.team.practices import (
    decision_brief,
    expert_decision,
    expert_report,
    expert_vote,
    sample_practice,
    vote_brief,
)
from scenarios.team.verdicts import (
    parse_decision,
    parse_report,
    parse_vote,
    verify_decision,
    verify_report,
    verify_vote,
)

__all__ = [
    "CONVENTIONS",
    "HOUSE",
    "SYMMETRIC",
    "Conventions",
    "ConventionsName",
    "FlagGame",
    "Seat",
    "TeamScenario",
    "certify_team",
    "decision_brief",
    "decision_value",
    "expert_decision",
    "expert_report",
    "expert_vote",
    "generate",
    "parse_decision",
    "parse_report",
    "parse_vote",
    "sample_practice",
    "verify_decision",
    "verify_report",
    "verify_vote",
    "vote_brief",
    "with_seat",
]
