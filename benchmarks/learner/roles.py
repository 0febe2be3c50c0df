"""Five roles' adapters on one base: one pass against five, and the time to hand new weights to the engine."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.learner.rows import LEARNING, build_model, build_team, short_groups
from roles.registry import ROLES
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.lora_rows import AdapterStack
from training.joint.role_weights import load_role_weights
from training.learner.learner import backward_role, backward_team
from training.models.adapters import named_role_parameters

WAYS = ("five passes, padded", "five passes", "one pass")


def run_roles(size: str, groups: int, group_size: int, repeats: int) -> dict[str, Any]:
    """Seconds of a team step in every way, all in turn (of CPU on one thread): five adapters on one base."""
    model = build_team(size)
    rows = {
        role: [row for group in short_groups(size, role, number, groups, group_size) for row in group]
        for number, role in enumerate(ROLES)
    }

    def step(way: str) -> None:
        layout = "padded" if way == "five passes, padded" else "shared_prompt"
        config = LEARNING.changed(memory__row_layout=layout, memory__logit_rows=256, loss__importance="token")
        model.zero_grad()
        if way == "one pass":
            backward_team(model, rows, config)
        else:
            for of_role in rows.values():
                backward_role(model, of_role, config)

    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for repeat in range(1 + repeats):
        for way in WAYS:
            start = clock()
            step(way)
            if repeat:
                seconds[way].append(clock() - start)
    tokens = sum(len(row.token_ids) for of_role in rows.values() for row in of_role)
    return {"tokens": tokens, "seconds": {way: statistics.median(found) for way, found in seconds.items()}}


def run_sync(size: str) -> dict[str, float]:
    """Milliseconds to hand a step's weights on: into a second copy, and into the engine that plays."""
    found = {}
    makers: dict[str, Callable[[], Any]] = {
        "one adapter into a second copy": lambda: build_team(size),
        "all weights into a second copy": lambda: build_model(size),
    }
    for name, make in makers.items():
        model, actor = make(), make()

        def copy(model: Any = model, actor: Any = actor) -> None:
            weights = {key: p.detach() for key, p in named_role_parameters(model, "cto")}
            load_role_weights(actor, "cto", weights)

        found[name] = _milliseconds(copy)
    team, engine = build_team(size), TransformersEngine(end_id=1)

    def serve() -> None:
        for role in ROLES:
            engine.set_policy(role, team, version=f"{role}@1", adapter=role)

    found["five adapters into the embedded engine"] = _milliseconds(serve)
    found["their stacking before its first pass"] = _milliseconds(lambda: AdapterStack(team, list(ROLES)))
    return found


def _milliseconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)
