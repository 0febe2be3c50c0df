"""Rates and shared items of reasoning-gym, for benchmarks/scenarios/generators.py. Prints JSON.

Runs under another interpreter that has reasoning-gym (and not emads): python reasoning_gym_rates.py rates 0.5
"""

import hashlib
import importlib.metadata
import json
import sys
import time

import reasoning_gym  # type: ignore[import-not-found]

# search, planning, allocation and logic: the data sets nearest to decisions; their default configs
DATASETS = (
    "shortest_path",
    "course_schedule",
    "graph_color",
    "maze",
    "jugs",
    "countdown",
    "quantum_lock",
    "knights_knaves",
    "zebra_puzzles",
)
TRAIN_SEED, TEST_SEED = 1, 2  # those of its own training/train_grpo.py
FAR_SEED = 1_000_000_007
SIZE = 1_000_000  # virtual


def ask(dataset, index: int) -> str:  # type: ignore[no-untyped-def]
    """The question of an item, "" where its generator gives up (maze does now and then)."""
    try:
        return str(dataset[index]["question"])
    except RuntimeError:
        return ""


def measure_rate(name: str, seconds: float) -> float:
    """Items per second of CPU time."""
    dataset = reasoning_gym.create_dataset(name, size=SIZE, seed=TRAIN_SEED)
    ask(dataset, SIZE - 1)
    start, index, count = time.process_time(), 0, 0
    while time.process_time() - start < seconds:
        count += ask(dataset, index) != ""
        index += 1
    return count / (time.process_time() - start)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:12]


def list_items(dataset, count: int, seconds: float) -> list[str]:  # type: ignore[no-untyped-def]
    start, questions = time.process_time(), []
    for index in range(count):
        questions.append(ask(dataset, index))
        if time.process_time() - start > seconds:
            break
    return [question for question in questions if question]


def measure_overlap(datasets, count: int, seconds: float) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Shares of the items under the test seed, and under a far one, that the training seed has too."""
    train, test, far = (list_items(dataset, count, seconds) for dataset in datasets)
    size = min(len(train), len(test), len(far))
    seen = {digest(text) for text in train[:size]}
    return {
        "count": size,
        "shared": sum(digest(text) in seen for text in test[:size]) / size,
        "shared_far": sum(digest(text) in seen for text in far[:size]) / size,
        "repeats": 1 - len(seen) / size,
    }


def main() -> None:
    what, first = sys.argv[1], float(sys.argv[2])
    result: dict[str, object] = {"version": importlib.metadata.version("reasoning-gym")}
    if what == "rates":
        result |= {name: measure_rate(name, first) for name in DATASETS}
    else:
        count, seconds = int(first), float(sys.argv[3])
        seeds = (TRAIN_SEED, TEST_SEED, FAR_SEED)
        for name in DATASETS:
            sets = [reasoning_gym.create_dataset(name, size=SIZE, seed=seed) for seed in seeds]
            result[name] = measure_overlap(sets, count, seconds)
        specs = [reasoning_gym.composite.DatasetSpec(name=name, weight=1, config={}) for name in DATASETS]
        sets = [
            reasoning_gym.create_dataset("composite", size=SIZE, seed=seed, datasets=specs) for seed in seeds
        ]
        result["composite of these"] = measure_overlap(sets, count, seconds)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
