"""Counts the groups of reports that can teach: whose scores under `cross_valued` differ.

    python -m benchmarks.joint.report_signal runs/smollm2 --stage grpo --cases 4

Plays training cases as a joint step does, and values the reports. Prints the mean reward of the step, and per
seat the share of cases whose report sets differ in score, and the mean spread (standard deviation over the
sets).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from roles.team import SPECIALISTS, TEAM_ROLES
from training.models.base_model import quiet_libraries, use_threads
from training.models.engine_factory import serve
from training.models.weights import load_team
from training.rl.credit import CrossValued
from training.rl.team.algorithm import choose_player
from training.rl.team.score import TeamScorer
from training.runs.run_folder import Run
from training.runs.workers import keep_freed_memory
from training.stages.from_config import choose_game, joint_cases, make_chat


def main(arguments: Sequence[str]) -> int:
    """Play and value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", default="grpo")
    parser.add_argument("--cases", type=int, default=4)
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    config = run.config.changed(marl__scenarios_per_step=options.cases)
    use_threads(config.threads_per_worker)
    models, tokenizer = load_team(run, options.stage)
    chat = make_chat(tokenizer, config)
    player = choose_player(config.marl, chat=chat, roles=tuple(TEAM_ROLES), make_game=choose_game(config))
    start = time.perf_counter()
    with serve(run, models, options.stage, end_id=chat.end_id) as engine:
        groups = player.play(engine, joint_cases(config, 0), "step-0")
    print(
        f"{len(groups)} cases of {config.marl.report_sets} report sets, {time.perf_counter() - start:.0f} s"
    )
    scheme = CrossValued()
    scorer = TeamScorer(weights=config.team_reward, value_offers=scheme.value_offers)
    scored = scorer.score(groups)
    rewards = [reward for group in scored for one in group.report_sets for reward in one.rewards]
    print(f"mean R {statistics.fmean(rewards):.3f}")
    for seat in SPECIALISTS:
        spreads = [statistics.pstdev(scheme.specialist_scores(seat, group.report_sets)) for group in scored]
        differing = sum(spread > 0 for spread in spreads)
        print(f"{seat}: {differing} of {len(spreads)} differ, spread {statistics.fmean(spreads):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
