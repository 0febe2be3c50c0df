"""Transfer from role training to the seat: rewards of reports with and without training on the seat's family.

    python -m benchmarks.roles.transfer --role cto --role-steps 300 --seat-steps 200
    python -m benchmarks.roles.transfer --run runs/demo

The first call trains two `tiny` models of the same initial weights by SFT for the same steps: one on the
role's own family, the other on another role's (`--control`; `none` leaves it untrained). Then both learn the
seat from the same demonstrations, for each number of steps anew from there; step 0 is zero-shot. The second
call takes a run and compares every seat before and after GRPO, which trains on role families alone. Measured
is the reward of greedy reports on the same sealed team cases: efficient offers, coverage, needs and vetoes.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.roles.seat_reports import score_reports
from evaluation.stats.intervals import paired_interval
from roles.team import SPECIALISTS
from scenarios.base import Style
from scenarios.team import PlanGame
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.config.run_config import DataConfig, RunConfig, SftConfig
from training.data.demonstrations import corpus, supervised_rows, team_scenario
from training.models.base_model import build_tiny_model, quiet_libraries, train_tokenizer
from training.models.weights import load_weights
from training.roles.sft import TrainingSite, run_sft
from training.runs.run_folder import Run
from training.stages.from_config import make_chat

DIFFICULTIES: tuple[int, ...] = (1, 2)
STYLE: Style = "short"
CONFIG = RunConfig(data=DataConfig(difficulties=DIFFICULTIES), model=ModelConfig(prompts=STYLE))
FIRST_SEAT_ROW = 500_000  # other cases than those of the role's own family
MOST_TOKENS = 160  # of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Rewards of reports without and with training on the seat's family.

    Example: Transfer(name="60 steps", without=(0.4, ...), trained=(0.6, ...))
    """

    name: str  # of the row
    without: tuple[float, ...]  # by case
    trained: tuple[float, ...]


def measure_transfer(
    role: str,
    *,
    control: str | None,
    role_steps: int,
    seat_steps: Sequence[int],
    num_cases: int,
    seed: int = 0,
) -> list[Transfer]:
    """The rewards of both models for each number of steps at the seat; `control` None: no steps before."""
    texts = corpus(CONFIG, 150)
    tokenizer = train_tokenizer(texts, 512)
    chat = HFChat(tokenizer, short_prompts=True)
    first = build_tiny_model(ModelConfig(), tokenizer, seed)

    def train(start: Any, name: str, steps: int, *, is_seat: bool) -> Any:
        model = copy_model(start, tokenizer)
        first_row = FIRST_SEAT_ROW if is_seat else 0
        share = float(is_seat)
        _train(model, tokenizer, chat, name, seat_share=share, steps=steps, first_row=first_row, seed=seed)
        return model

    without = first if control is None else train(first, control, role_steps, is_seat=False)
    trained = train(first, role, role_steps, is_seat=False)
    found = []
    for steps in seat_steps:
        rewards = [
            score_seat(train(start, role, steps, is_seat=True), chat, role, num_cases, seed)
            for start in (without, trained)
        ]
        found.append(Transfer(name=f"{steps} steps at the seat", without=rewards[0], trained=rewards[1]))
    return found


def compare_stages(path: Path, *, num_cases: int) -> list[Transfer]:
    """The rewards of every seat's reports after SFT and after GRPO of a run, in its prompts."""
    run = Run.open(path)
    chat = make_chat(load_weights(run, "sft", SPECIALISTS[0])[1], run.config)
    data = run.config.data
    found = []
    for role in SPECIALISTS:
        before, after = (
            score_seat(
                load_weights(run, stage, role)[0], chat, role, num_cases, run.config.seed,
                data.difficulties, run.config.model.prompts,
            )
            for stage in ("sft", "grpo")
        )  # fmt: skip
        found.append(Transfer(name=role, without=before, trained=after))
    return found


def copy_model(model: Any, tokenizer: Any) -> Any:
    """A new model of the same weights: a trainer binds the forward pass of a model to its own weights."""
    copied = build_tiny_model(ModelConfig(), tokenizer, seed=0)
    copied.load_state_dict(model.state_dict())
    return copied


def _train(
    model: Any,
    tokenizer: Any,
    chat: HFChat,
    role: str,
    *,
    seat_share: float,
    steps: int,
    first_row: int,
    seed: int,
) -> None:
    config = SftConfig()
    rows = supervised_rows(
        CONFIG,
        role,
        chat,
        num_rows=max(1, steps) * config.batch_size,
        first_row=first_row,
        seat_share=seat_share,
    )
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        run_sft(
            model,
            tokenizer,
            list(rows),
            config,
            TrainingSite(output_dir=Path(scratch), seed=seed, on_step=lambda step, metrics: None),
            max_steps=steps,
        )


def score_seat(
    model: Any,
    chat: HFChat,
    role: str,
    num_cases: int,
    seed: int,
    difficulties: Sequence[int] = DIFFICULTIES,
    style: Style = STYLE,
) -> tuple[float, ...]:
    """The reward of the model's greedy report on each of the first sealed team cases."""
    engine = TransformersEngine(end_id=chat.end_id, seed=seed)
    engine.set_policy(role, model.eval(), version=f"{role}@transfer")
    data = DataConfig(difficulties=tuple(difficulties))
    verdicts = score_reports(
        role,
        [team_scenario(data, "test", index) for index in range(num_cases)],
        policy=role,
        engine=engine,
        chat=chat,
        make_game=partial(PlanGame, style=style),
        max_completion_tokens=MOST_TOKENS,
        stream="transfer",
    )
    return tuple(verdict.reward for verdict in verdicts)


def write_table(found: Sequence[Transfer], columns: Sequence[str]) -> list[str]:
    """A Markdown table: mean rewards, and the paired difference with its 95 % interval."""
    lines = [f"| {' | '.join(columns)} | difference |", f"|{' --- |' * (len(columns) + 1)}"]
    for one in found:
        gain = paired_interval(one.trained, one.without)
        lines.append(f"| {one.name} | {fmean(one.without):.3f} | {fmean(one.trained):.3f} | {gain:+.3f} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--run", type=Path, help="compare the stages of this run; the other options but --cases do not count"
    )
    parser.add_argument("--role", choices=SPECIALISTS, default="cto")
    parser.add_argument("--control", choices=(*SPECIALISTS, "none"), default="coo")
    parser.add_argument("--role-steps", type=int, default=300, help="SFT steps on a role's family")
    parser.add_argument("--seat-steps", type=int, nargs="+", default=[0, 60, 200])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of weights and order of rows")
    options = parser.parse_args(arguments)
    quiet_libraries()
    start = time.process_time()
    if options.run is not None:
        columns = ["seat", "after SFT", "after GRPO on its family"]
        found = compare_stages(options.run, num_cases=options.cases)
    else:
        if options.role == options.control:
            parser.error(f"--control {options.control} is the role itself; name another one, or none")
        control = None if options.control == "none" else options.control
        columns = [options.role, f"trained on {control or 'nothing'} before", f"on {options.role} before"]
        found = measure_transfer(
            options.role,
            control=control,
            role_steps=options.role_steps,
            seat_steps=options.seat_steps,
            num_cases=options.cases,
            seed=options.seed,
        )
    print("\n".join(write_table(found, columns)))
    print(f"{options.cases} sealed cases, {time.process_time() - start:.0f} s of CPU time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
