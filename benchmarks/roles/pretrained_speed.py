"""CPU seconds per demonstration and per rollout of a config's pretrained model, on real role prompts.

    python -m benchmarks.roles.pretrained_speed --config configs/schedules/smollm2.yaml --role cto [--profile]

The expert's transcripts stand for what the model would say: the engine computes and samples every token, and
the expert's token is then taken in place of the sampled one, so that lengths are the same whatever the
weights. A row of the table is one phase: SFT (forward, loss, backward, optimizer), the play of a step's
rollouts by the engine, and what GRPO learns from them (log-probabilities of the reference, then forward and
backward). `joint` plays and learns the reports, decisions and votes of all seats.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roles.registry import ROLES
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from simulator.engines.embedded.lanes import Row
from training.config.loading import load_config
from training.config.rl_config import RLConfig
from training.config.run_config import RunConfig
from training.data.demonstrations import TokenRow, supervised_rows
from training.learner.learner import backward_team
from training.learner.rows import TrainingRow
from training.models.adapters import attach
from training.models.base_model import load_frozen_base, load_pretrained, quiet_libraries
from training.roles.sft import TrainingSite, run_sft
from training.runs.workers import keep_freed_memory


class ScriptedEngine(TransformersEngine):
    """Takes the token of a script in place of the one that it sampled."""

    scripts: dict[str, tuple[int, ...]]  # of each session the whole transcript

    def _pick(self, rows: Sequence[Row], logits: Tensor) -> list[tuple[int, float]]:
        said = []
        for row, (_, logprob) in zip(rows, super()._pick(rows, logits), strict=True):
            script = self.scripts[row.session]
            said.append((script[min(len(row.cached), len(script) - 1)], logprob))
        return said


def main(arguments: Sequence[str]) -> int:
    """Print a line per phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--role", choices=list(ROLES), default="cto")
    parser.add_argument("--phases", default="sft,play,learn,joint")
    parser.add_argument("--layers", type=int, help="of the model, for a look at what takes long otherwise")
    parser.add_argument(
        "--steps", type=int, default=1, help="of SFT; the first one is slower than the others"
    )
    parser.add_argument("--turns", type=int, default=100, help="play and learn the first turns alone")
    parser.add_argument("--profile", action="store_true", help="say where the time of each phase goes")
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    torch.manual_seed(0)
    config = load_config(options.config, ["data.difficulties=[1]", *options.set])
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        _write_base(config, Path(scratch) / "base", options.layers)
        model, tokenizer = _load(config, Path(scratch), ("default",))
        chat = HFChat(tokenizer, short_prompts=config.model.short_prompts)
        rows = _draw(config, chat, options.role, config.sft.batch_size, seat_share=0.0)
        lengths = torch.tensor([[len(row.token_ids), sum(row.loss_mask)] for row in rows]).float().mean(0)
        print(
            f"{options.role}: {lengths[0]:.0f} tokens a demonstration, {lengths[1]:.0f} its own", flush=True
        )
        grpo = config.grpo
        cut = [_cut(row, options.turns) for row in rows]
        played = [row for row in cut[: grpo.prompts_per_step] for _ in range(grpo.group_size)]
        phases: dict[str, tuple[int, Callable[[], Any]]] = {
            "sft": (
                options.steps * len(rows),
                lambda: _train_sft(config, model, tokenizer, rows, Path(scratch), options.steps),
            ),
            "play": (
                len(played),
                lambda: _play(config, model, chat, [(options.role, row) for row in played]),
            ),
            "learn": (len(played), lambda: _learn(config, model, played)),
        }
        for name in options.phases.split(","):
            if name == "joint":
                _measure_joint(config, chat, Path(scratch), options)
            else:
                _measure(name, phases[name][0], options, phases[name][1])
    return 0


def _measure_joint(config: RunConfig, chat: HFChat, folder: Path, options: argparse.Namespace) -> None:
    team, _ = _load(config, folder, tuple(ROLES))
    rows = [
        (role, _cut(row, options.turns))
        for role in ROLES
        for row in _draw(config, chat, role, config.marl.scenarios_per_step, seat_share=1.0)
        for _ in range(config.marl.group_size)
    ]
    count = config.marl.scenarios_per_step * config.marl.group_size
    _measure("joint play", count, options, lambda: _play(config, team, chat, rows))
    _measure("joint learn", count, options, lambda: _learn_joint(config, team, rows))


def _write_base(config: RunConfig, folder: Path, num_layers: int | None) -> None:
    base, tokenizer = load_pretrained(config.model.preset)
    if num_layers:
        adapted: Any = base
        adapted.model.layers = adapted.model.layers[:num_layers]
        adapted.config.num_hidden_layers = num_layers
    base.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _load(config: RunConfig, folder: Path, names: tuple[str, ...]) -> tuple[Any, Any]:
    base, tokenizer = load_frozen_base(folder / "base", config.model)
    model: Any = attach(base, config.model, seed=0, name=names[0])
    for name in names[1:]:
        model.add_adapter(name, model.peft_config[names[0]])
    return model, tokenizer


def _draw(config: RunConfig, chat: HFChat, role: str, count: int, *, seat_share: float) -> list[TokenRow]:
    drawn = supervised_rows(config, role, chat, num_rows=count, first_row=0, seat_share=seat_share)
    return list(drawn)


def _cut(row: TokenRow, turns: int) -> TokenRow:
    """The transcript up to the end of so many own turns."""
    stop = 0
    for _ in range(turns):
        if 1 not in row.loss_mask[stop:]:
            break
        stop = row.loss_mask.index(1, stop)
        stop = row.loss_mask.index(0, stop) if 0 in row.loss_mask[stop:] else len(row.loss_mask)
    return TokenRow(token_ids=tuple(row.token_ids[:stop]), loss_mask=tuple(row.loss_mask[:stop]))


def _train_sft(
    config: RunConfig, model: Any, tokenizer: Any, rows: list[TokenRow], folder: Path, num_steps: int
) -> float:
    losses: list[float] = []
    ends: list[float] = []  # CPU seconds of the process after each step

    def note(step: int, metrics: Mapping[str, float]) -> None:
        losses.append(metrics["loss"])
        ends.append(time.process_time())

    sft = config.sft.model_copy(update={"validate_every": 0, "patience": 0})
    run_sft(
        model,
        tokenizer,
        rows,
        sft,
        TrainingSite(output_dir=folder, seed=0, on_step=note),
        max_steps=num_steps,
        gradient_checkpointing=config.model.gradient_checkpointing,
    )
    if num_steps > 1:
        each = (ends[-1] - ends[0]) / (num_steps - 1) / len(rows)
        print(f"sft after its first step: {each:.2f} CPU-s each", flush=True)
    return losses[0]


def _play(config: RunConfig, model: Any, chat: HFChat, rows: list[tuple[str, TokenRow]]) -> float:
    engine = ScriptedEngine(end_id=None, seed=0)
    engine.scripts = {str(place): row.token_ids for place, (_, row) in enumerate(rows)}
    for role in dict.fromkeys(role for role, _ in rows):
        engine.set_policy(role, model, version=f"{role}@0")

    async def play(place: int, role: str, row: TokenRow) -> float:
        total, stop = 0.0, 0
        while 1 in row.loss_mask[stop:]:
            start = row.loss_mask.index(1, stop)
            stop = row.loss_mask.index(0, start) if 0 in row.loss_mask[start:] else len(row.loss_mask)
            request = CompletionRequest(
                policy=role,
                session=str(place),
                prompt_ids=row.token_ids[:start],
                sampling=Sampling(temperature=1.0, max_completion_tokens=stop - start),
            )
            completion = await engine.complete(request)
            assert completion.token_ids == row.token_ids[start:stop]
            total += sum(completion.logprobs)
        engine.end_session(str(place))
        return total

    async def play_all() -> list[float]:
        return await asyncio.gather(*(play(place, *one) for place, one in enumerate(rows)))

    return sum(asyncio.run(play_all())) / len(rows)


def _learn(config: RunConfig, model: Any, rows: list[TokenRow]) -> float:
    """Passes of GRPO's learner."""
    return _learn_joint(config, model, [("cto", row) for row in rows], config.grpo)


def _learn_joint(
    config: RunConfig, team: Any, rows: list[tuple[str, TokenRow]], section: RLConfig | None = None
) -> float:
    by_role: dict[str, list[TrainingRow]] = {}
    for place, (role, row) in enumerate(rows):
        by_role.setdefault(role, []).append(
            TrainingRow(
                role=role,
                token_ids=tuple(row.token_ids),
                loss_mask=tuple(row.loss_mask),
                sampling_logprobs=(0.0,) * len(row.token_ids),
                advantage=1.0 if place % 2 else -1.0,
            )
        )
    stats = backward_team(team, by_role, (section or config.marl).changed(loss__kl_coefficient=0.0))
    return sum(one.loss for one in stats.values())


def _measure(name: str, count: int, options: argparse.Namespace, work: Callable[[], Any]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    if options.profile:
        with torch.profiler.profile() as profiler:
            result = work()
        print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=14))
    else:
        result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name}: {cpu / count:.2f} CPU-s each ({count}, wall {wall:.0f} s,"
        f" {torch.get_num_threads()} threads, {_peak_gib():.1f} GiB at most, result {result:.4f})",
        flush=True,
    )


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
