"""Runs the joint stage of a run under torchrun on real vLLM, with an engine beside each rank.

A team of random weights earns nothing, so the child replaces its rewards by ones that differ. Each step
leaves the versions that its completions name.
"""

import json
import sys
from pathlib import Path
from typing import Any

from vllm_models import differ

from training.learner.ranks import end_process
from training.rl.loop import RLLearner
from training.rl.team.score import TeamScorer
from training.stages import on_ranks

score, learn = TeamScorer.score, RLLearner.learn


def learn_noted(learner: RLLearner, groups: Any) -> dict[str, float]:
    """Write the versions of all completions, then learn from them."""
    turns = [
        turn
        for group in groups
        for one in group.report_sets
        for episode in one.episodes
        for trajectory in episode.trajectories.values()
        for turn in trajectory.turns
    ]
    place = f"versions-{learner.ranks.rank}-{learner.num_steps}.json"
    versions = sorted({turn.policy_version for turn in turns})
    (Path(sys.argv[1]) / place).write_text(json.dumps(versions))
    return learn(learner, groups)


if __name__ == "__main__":
    setattr(TeamScorer, "score", lambda scorer, groups: differ(score(scorer, groups)))  # noqa: B010
    setattr(RLLearner, "learn", learn_noted)  # noqa: B010
    end_process(on_ranks.main([sys.argv[1], "marl"]))
