"""Transfer from role training to the seat: reports of a role-trained model and of an untrained one.

python -m benchmarks.roles.transfer --role cto --role-steps 300 --seat-steps 0 60 150

Both models are of the `tiny` preset with the same initial weights and tokenizer. One is first trained by SFT
on the role's own family alone. Then both learn the seat from the same demonstrations, for each number of
steps anew from there. Measured is the reward of their reports (greedy, test cases): efficient offers,
coverage, needs and vetoes. Step 0 is zero-shot: neither has seen a report.
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

from evaluation.scoring.seat_reports import score_reports
from evaluation.stats.intervals import paired_interval
from roles.team import SPECIALISTS
from scenarios.base import Style
from scenarios.team import PlanGame
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.config.sft_config import SftConfig
from training.data.demonstrations import corpus, supervised_rows, team_scenario
from training.models.base_model import build_tiny_model, quiet_libraries, train_tokenizer
from training.roles.sft import run_sft

DIFFICULTIES: tuple[int, ...] = (1, 2)
STYLE: Style = "short"
FIRST_SEAT_ROW = 500_000  # other cases than those of the role's own family
MOST_TOKENS = 160  # of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Rewards of reports after the same training at the seat.

    Example: Transfer(seat_steps=60, untrained=(0.4, ...), role_trained=(0.6, ...))
    """

    seat_steps: int
    untrained: tuple[float, ...]  # by case
    role_trained: tuple[float, ...]


def measure_transfer(
    role: str, *, role_steps: int, seat_steps: Sequence[int], num_cases: int, seed: int = 0
) -> list[Transfer]:
    """The rewards of both models for each number of steps at the seat."""
    texts = corpus(num_role=150, num_team=150, seed=0, difficulties=DIFFICULTIES, style=STYLE)
    tokenizer = train_tokenizer(texts, 512)
    chat = HFChat(tokenizer, short_prompts=True)
    untrained = build_tiny_model(ModelConfig(), tokenizer, seed)
    role_trained = copy_model(untrained, tokenizer)
    _train(role_trained, tokenizer, chat, role, seat_share=0.0, steps=role_steps, first_row=0, seed=seed)
    found = []
    for steps in seat_steps:
        rewards = []
        for start in (untrained, role_trained):
            model = copy_model(start, tokenizer)
            _train(
                model, tokenizer, chat, role, seat_share=1.0, steps=steps, first_row=FIRST_SEAT_ROW, seed=seed
            )
            rewards.append(_score(model, chat, role, num_cases, seed))
        found.append(Transfer(seat_steps=steps, untrained=rewards[0], role_trained=rewards[1]))
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
        role,
        chat,
        num_rows=max(1, steps) * config.batch_size,
        first_row=first_row,
        seat_share=seat_share,
        seed=0,
        difficulties=DIFFICULTIES,
        style=STYLE,
    )
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        run_sft(
            model,
            tokenizer,
            list(rows),
            config,
            max_steps=steps,
            output_dir=Path(scratch),
            seed=seed,
            on_step=lambda step, metrics: None,
        )


def _score(model: Any, chat: HFChat, role: str, num_cases: int, seed: int) -> tuple[float, ...]:
    engine = TransformersEngine(end_id=chat.end_id, seed=seed)
    engine.set_policy(role, model.eval(), version=f"{role}@transfer")
    verdicts = score_reports(
        role,
        [team_scenario("test", 0, index, DIFFICULTIES) for index in range(num_cases)],
        policy=role,
        engine=engine,
        chat=chat,
        make_game=partial(PlanGame, style=STYLE),
        max_completion_tokens=MOST_TOKENS,
        stream="transfer",
    )
    return tuple(verdict.reward for verdict in verdicts)


def write_table(found: Sequence[Transfer]) -> list[str]:
    """A Markdown table: mean rewards, and the paired difference with its 95 % interval."""
    lines = [
        "| SFT steps at the seat | untrained | role-trained | difference |",
        "| --- | --- | --- | --- |",
    ]
    for one in found:
        gain = paired_interval(one.role_trained, one.untrained)
        lines.append(
            f"| {one.seat_steps} | {fmean(one.untrained):.3f} | {fmean(one.role_trained):.3f} | "
            f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--role", choices=SPECIALISTS, default="cto")
    parser.add_argument("--role-steps", type=int, default=300, help="SFT steps on the role's own family")
    parser.add_argument("--seat-steps", type=int, nargs="+", default=[0, 60, 150])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of weights and order of rows")
    options = parser.parse_args(arguments)
    quiet_libraries()
    start = time.process_time()
    found = measure_transfer(
        options.role,
        role_steps=options.role_steps,
        seat_steps=options.seat_steps,
        num_cases=options.cases,
        seed=options.seed,
    )
    print("\n".join(write_table(found)))
    print(f"{options.role}, {options.cases} test cases, {time.process_time() - start:.0f} s of CPU time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
