"""Episodes of experts who all follow the same habits."""

import random

from evaluation.scoring.baselines import play_experts, write_episode
from scenarios.team import TeamScenario
from simulator.records import Episode


def expert_episode(scenario: TeamScenario, report_habit: str, funding_habit: str) -> Episode:
    """Return a meeting of experts who all follow the same habits."""
    rng = random.Random(f"experts/{scenario.key}")
    return write_episode(scenario, play_experts(report_habit, funding_habit)(scenario, rng))
