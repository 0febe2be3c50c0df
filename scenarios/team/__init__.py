"""The team family: each specialist sees only its own facts, ReconcileGPT only their reports.

Belongs here: the case (`case`, `certify`), its texts between seats (`texts`), the experts' play (`practices`,
`conventions`), strict reading and verdicts (`verdicts`), and what a graph plays it by (`game`).
Not here: the planning table that replaces it (scenarios.table).
"""

from scenarios.team.case import Seat, TeamScenario, decision_value, generate, with_seat
from scenarios.team.certify import certify_team
from scenarios.team.conventions import CONVENTIONS, HOUSE, SYMMETRIC, Conventions, ConventionsName
from scenarios.team.game import FlagGame
from scenarios.team.practices import expert_decision, expert_report, expert_vote, sample_practice
from scenarios.team.texts import decision_brief, vote_brief
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
