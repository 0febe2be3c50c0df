"""Plays a run's team on validation cases, beside experts of one habit at the table; nothing sealed is spent.

    python -m benchmarks.joint.validation_team runs/smollm2 --stage sft --count 12 --temperature 0
    python -m benchmarks.joint.validation_team runs/smollm2 --count 100 --experts-only

Prints the team's mean reward R and value V with each case's explanation, the seconds of a case, and the mean
V of experts of mixed habits and of every habit of reporting, shares of the budget included, funded exactly,
on the same cases.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.joint.expert_questions import value_of_meeting
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.experts import REPORT_HABITS, SHARE_HABITS
from simulator.graph.runner import play_team
from simulator.reward import score_episode
from training.data.demonstrations import Habits, team_scenario
from training.models.base_model import quiet_libraries, use_threads
from training.models.engine_factory import serve
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.runs.workers import keep_freed_memory
from training.stages.from_config import choose_game, make_chat


def main(arguments: Sequence[str]) -> int:
    """Play the team and the experts, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", default="sft")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--experts-only", action="store_true")
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    config = run.config
    use_threads(config.threads_per_worker)
    data = config.data
    cases = [team_scenario(data, "validation", index) for index in range(options.count)]
    single = {habit: (habit, "exact") for habit in (*REPORT_HABITS, *SHARE_HABITS)}
    for name, habits in {"mixed": None, **single}.items():
        value = statistics.fmean(value_of_experts(run, case, habits) for case in cases)
        print(f"experts, {name}: V {value:.3f}")
    if options.experts_only:
        return 0
    models, tokenizer = load_team(run, options.stage)
    chat = make_chat(tokenizer, config)
    start = time.perf_counter()
    with serve(run, models, options.stage, end_id=chat.end_id) as engine:
        episodes = play_team(
            cases,
            engine=engine,
            chat=chat,
            temperature=options.temperature,
            max_completion_tokens=config.marl.max_completion_tokens,
            stream="validation",
            make_game=choose_game(config),
            rounds=config.marl.rounds,
        )
    wall_s = time.perf_counter() - start
    pairs = zip(cases, episodes, strict=True)
    verdicts = [score_episode(case, episode, config.team_reward) for case, episode in pairs]
    for verdict in verdicts:
        print(f"R {verdict.reward:.3f}: {verdict.explanation}")
    print(
        f"{options.stage}, {len(cases)} cases at temperature {options.temperature:g}:"
        f" R {statistics.fmean(one.reward for one in verdicts):.3f},"
        f" V {statistics.fmean(one.value for one in verdicts):.3f}, {wall_s / len(cases):.1f} s each"
    )
    return 0


def value_of_experts(run: Run, case: TeamScenario, habits: Habits | None) -> float:
    """V of a meeting of experts; with None each draws its own habit."""
    game = choose_game(run.config)(case)
    assert isinstance(game, PlanGame)  # the only game that experts demonstrate
    return value_of_meeting(case, hold_meeting(game, habits=habits))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
