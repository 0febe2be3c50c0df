"""A team step divided over the ranks that torchrun started; benchmarks/learner/step.py runs it."""

import statistics
import time
from typing import Any

from benchmarks.learner.rows import LEARNING, build_team, short_groups
from roles.registry import ROLES
from training.learner.fsdp import join_ranks, leave_ranks
from training.learner.learner import backward_team
from training.learner.ranks import Ranks
from training.models.adapters import role_parameters


def run_ranks(size: str, repeats: int) -> dict[str, Any]:
    """Seconds of a team step of four groups per role on these ranks, and of its exchange of gradients."""
    ranks = join_ranks()
    model = build_team(size)
    rows = {
        role: [row for group in ranks.shard(short_groups(size, role, number))[0] for row in group]
        for number, role in enumerate(ROLES)
    }
    config = LEARNING.changed(
        memory__row_layout="shared_prompt", memory__logit_rows=256, loss__importance="token"
    )
    steps, exchanges = [], []
    for _ in range(1 + repeats):
        model.zero_grad()
        ranks.wait()
        start = time.perf_counter()
        backward_team(model, rows, config)
        add_gradients(model, ranks)
        steps.append(time.perf_counter() - start)
        ranks.wait()  # the exchange once more by itself, when nobody has to be waited for
        start = time.perf_counter()
        add_gradients(model, ranks)
        exchanges.append(time.perf_counter() - start)
    found = {
        "seconds": statistics.median(steps[1:]),
        "exchange": statistics.median(exchanges[1:]),
        "rank": ranks.rank,
    }
    leave_ranks(ranks)
    return found


def add_gradients(model: Any, ranks: Ranks) -> None:
    for role in ROLES:
        ranks.add_gradients(role_parameters(model, role), has_gradient=True)
