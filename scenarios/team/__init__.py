"""The team family: one company case, split. Seats offer plan parts, ReconcileGPT funds some on one option.

Belongs here: who sees what (`scenario`, `playable`), what a report may claim (`offers`), what a decision is
worth (`value`), all texts between seats (`texts`), how experts play (`experts`), and what
a graph plays it by (`game`).
Not here: the company and its structures (scenarios.company).
"""

from scenarios.base import Style
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, Table, TabledOffer, load_table
from scenarios.team.playable import PlayableCase, PublicCase, Seat
from scenarios.team.scenario import TeamScenario, generate, seat_team, with_seat
from scenarios.team.value import DecisionValue, decision_value, judge_decision

__all__ = [
    "CheckedReport",
    "DecisionValue",
    "PlanGame",
    "PlayableCase",
    "PublicCase",
    "Seat",
    "Style",
    "Table",
    "TabledOffer",
    "TeamScenario",
    "decision_value",
    "generate",
    "judge_decision",
    "load_table",
    "seat_team",
    "with_seat",
]
