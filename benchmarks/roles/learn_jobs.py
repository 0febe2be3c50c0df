"""Trains one tiny model on all whole jobs in short form, and plays it beside each job's rule of thumb.

    python -m benchmarks.roles.learn_jobs --out runs/learn-jobs --steps 4000

One model of about 0.6M weights learns from fresh demonstrations of difficulties 1 and 2, no case twice and as
many of each job, in the short form of `benchmarks/roles/short_jobs.py`. Then it plays cases of the validation
split, at temperature 1 and greedily. The rule of thumb plays the same cases; differences are paired by case,
with 95 % intervals. The weights and every play are kept in --out.
"""

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.roles.short_jobs import DIFFICULTIES, SHORT_JOB_ROLES, SHORT_JOBS
from evaluation.scoring.sealed_plays import play_stage, solo_player
from evaluation.stats.intervals import paired_interval
from scenarios.base import Scenario, Split
from scenarios.tasks.registry import JOBS, TASK_FAMILIES
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.config.run_config import SftConfig
from training.data.demonstrations import TokenRow, demonstration_row, difficulty_of, family_texts, take_turns
from training.models.base_model import build_tiny_model, quiet_libraries, train_tokenizer, use_threads
from training.roles.sft import TrainingSite, run_sft

TOKENIZER_CASES = 300  # per job
MOST_TOKENS = 60  # of an answer
STEPS_PER_LINE = 200  # between two lines that tell the loss


def draw_cases(name: str, split: Split, count: int, seed: int) -> Iterator[Scenario]:
    """The first cases of a job in short form; difficulties take turns."""
    for index in range(count):
        yield SHORT_JOBS[name].generate(split, seed, index, difficulty_of(index, DIFFICULTIES))


def make_chat(seed: int) -> tuple[Any, HFChat]:
    """A tokenizer that is trained on all jobs, and its chat."""
    texts = []
    for name in JOBS:
        cases = list(draw_cases(name, "train", TOKENIZER_CASES, seed))
        texts += [f"{SHORT_JOB_ROLES[name].title}."] * len(cases)
        texts += family_texts(SHORT_JOBS[name], cases)
    tokenizer = train_tokenizer(texts, ModelConfig().vocab_size)
    return tokenizer, HFChat(tokenizer, short_prompts=True)


def write_rows(name: str, chat: HFChat, count: int, seed: int) -> Iterator[TokenRow]:
    """Demonstrations of a job as token rows."""
    for case in draw_cases(name, "train", count, seed):
        yield demonstration_row(SHORT_JOBS[name], case, chat, SHORT_JOB_ROLES)


def describe_lengths(rows: Sequence[TokenRow]) -> str:
    """Cells of the table: tokens of context and answer, the mean and the most."""
    answers = [sum(row.loss_mask) for row in rows]
    contexts = [len(row.token_ids) - answer for row, answer in zip(rows, answers, strict=True)]
    return " | ".join(f"{fmean(counts):.0f} ({max(counts)})" for counts in (contexts, answers))


def follow_rule(name: str, cases: Sequence[Scenario]) -> list[float]:
    """Rewards of the job's rule of thumb on cases in short form, whose facts are those of the full form."""
    job = TASK_FAMILIES[name]
    return [job.verify(case, job.baselines["greedy"](case, random.Random(0))).reward for case in cases]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--steps", type=int, default=4000, help="of SFT, of --batch-size demonstrations each")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--count", type=int, default=500, help="validation cases of every job")
    parser.add_argument("--seed", type=int, default=0, help="of cases, weights and order of rows")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; name a new folder")
    quiet_libraries()
    use_threads(options.threads)
    tokenizer, chat = make_chat(options.seed)
    num_rows = options.steps * options.batch_size
    streams = [list(write_rows(name, chat, -(-num_rows // len(JOBS)), options.seed)) for name in JOBS]
    model = build_tiny_model(ModelConfig(), tokenizer, options.seed)
    print(f"{sum(weights.numel() for weights in model.parameters())} weights, {num_rows} demonstrations")

    def report(step: int, metrics: Any) -> None:
        if "loss" in metrics and (step % STEPS_PER_LINE == 0 or step == options.steps):
            print(f"step {step}: loss {metrics['loss']:.4f}", flush=True)

    run_sft(
        model,
        tokenizer,
        take_turns(streams, num_rows),
        SftConfig(batch_size=options.batch_size),
        TrainingSite(output_dir=options.out / "trainer", seed=options.seed, on_step=report),
        max_steps=options.steps,
    )
    model.save_pretrained(options.out / "model")
    tokenizer.save_pretrained(options.out / "model")
    print(f"{time.process_time():.0f} CPU seconds up to here", flush=True)

    engine = TransformersEngine(end_id=chat.end_id, seed=options.seed)
    model.eval()
    print("| job | context | answer | rule of thumb | sampled | sampled - rule | greedy | greedy - rule |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rows in zip(JOBS, streams, strict=True):
        engine.set_policy(name, model, version=f"{name}@{options.steps}")
        play = solo_player(
            name,
            SHORT_JOBS,
            engine=engine,
            chat=chat,
            max_turns=1,
            max_completion_tokens=MOST_TOKENS,
            roles=SHORT_JOB_ROLES,
        )
        cases = list(draw_cases(name, "validation", options.count, options.seed))
        plays = play_stage(name, "sft", cases, play, folder=options.out / "plays")
        by_rule = follow_rule(name, cases)
        cells = [f"`{name}`", describe_lengths(rows), f"{fmean(by_rule):.3f}"]
        for mode in ("sampled", "greedy"):
            earned = plays.column("reward", mode)
            cells += [f"{fmean(earned):.3f}", f"{paired_interval(earned, by_rule):+.3f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
