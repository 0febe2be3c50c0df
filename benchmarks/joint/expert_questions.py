"""Measures what questions are worth to expert meetings on training cases.

    python -m benchmarks.joint.expert_questions --style full

Prints for every difficulty the mean V without questions and with one, and how many meetings asked.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

from roles.team import RECONCILER, Decision
from scenarios.base import Style
from scenarios.team import PlanGame, TeamScenario, generate
from scenarios.team.demonstrations import Meeting, hold_meeting
from scenarios.team.offers import load_table
from scenarios.team.value import decision_value


def main(arguments: Sequence[str]) -> int:
    """Hold the meetings and print a line per difficulty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--style", choices=("full", "short"), default="full")
    parser.add_argument("--difficulties", type=int, nargs="+", default=[1, 2, 3, 5, 7])
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args(arguments)
    for difficulty in options.difficulties:
        silent, asking = (
            [measure(difficulty, index, options.style, questions) for index in range(options.count)]
            for questions in (0, 1)
        )
        values = [statistics.fmean(value for value, _ in found) for found in (silent, asking)]
        num_asked = sum(asked for _, asked in asking)
        print(
            f"difficulty {difficulty}: V {values[0]:.3f}, with a question {values[1]:.3f} ({num_asked} asked)"
        )
    return 0


def measure(difficulty: int, index: int, style: Style, questions: int) -> tuple[float, int]:
    """V of the experts' meeting on a training case, and how often they asked."""
    case = generate("train", 0, index, difficulty)
    meeting = hold_meeting(PlanGame(case, style, questions))
    return value_of_meeting(case, meeting), len(meeting.messages[RECONCILER]) - 1


def value_of_meeting(case: TeamScenario, meeting: Meeting) -> float:
    """V of what an expert meeting decided."""
    decision = None if meeting.decision is None else Decision.model_validate(meeting.decision)
    return decision_value(case, load_table(meeting.reports), decision)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
