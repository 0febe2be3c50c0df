"""Measures what GRPO adds to one model of all roles after few and many demonstrations, and its CPU time.

    python -m benchmarks.roles.demonstration_budget --out runs/budget --budget 7000 --budget 12000 \
        --set grpo.max_steps=60 --set grpo.prompts_per_step=40 --set grpo.learning_rate=5e-4

Each budget is a number of demonstrations per role, none of them shown twice. SFT learns from them, GRPO goes
on from there on cases without a demonstration. Both play the same cases of the validation split, at
temperature 1 and greedily; changes are paired by case, with 95 % bootstrap intervals. CPU seconds are of all
processes of a stage. What is done is kept in --out.
"""

import argparse
import resource
import statistics
import sys
from pathlib import Path

import emads
from emads.cli import main as run_command
from evaluation.scoring.outcomes import MODES, StagePlays
from evaluation.scoring.sealed_plays import play_stage, solo_player
from evaluation.stats.intervals import paired_interval
from scenarios.registry import families
from training.config.loading import load_config
from training.data.demonstrations import role_scenario
from training.models.base_model import quiet_libraries
from training.models.engine_factory import serve
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import make_chat

DEMO = Path(emads.__file__).with_name("demo.yaml")
VALIDATION_SEED = 77


def train(options: argparse.Namespace, budget: int, path: Path) -> dict[str, float]:
    """Train base, SFT and GRPO of the budget; returns each stage's CPU seconds, 0 if it was done."""
    batch_size = load_config(DEMO, options.set).sft.batch_size
    steps = 5 * budget // batch_size  # five roles share a batch
    changes = [*options.set, f"data.num_demonstrations={budget}", f"sft.max_steps={steps}"]
    seconds = {}
    for stage in ("base", "sft", "grpo"):
        begin = ["--resume"] if path.exists() else ["--config", str(DEMO), *_flags(changes)]
        before = _cpu_seconds()
        if status := run_command(["train", stage, str(path), *begin]):
            sys.exit(status)
        seconds[stage] = _cpu_seconds() - before
    return seconds


def score(path: Path, stage: str, num_cases: int) -> dict[str, StagePlays]:
    """Every role's rewards on the first `num_cases` cases of the validation split."""
    run = Run.open(path)
    config = run.config
    models, tokenizer = load_team(run, stage)
    chat = make_chat(tokenizer, config)
    found = {}
    with serve(run, models, stage, end_id=chat.end_id) as engine:
        for role in models:
            cases = [
                role_scenario(
                    role,
                    "validation",
                    VALIDATION_SEED,
                    index,
                    config.data.difficulties,
                    config.model.prompts,
                )
                for index in range(num_cases)
            ]
            play = solo_player(
                role,
                families(config.model.prompts),
                engine=engine,
                chat=chat,
                max_turns=config.grpo.max_turns,
                max_completion_tokens=config.grpo.max_completion_tokens,
            )
            found[role] = play_stage(role, stage, cases, play, folder=path / "validation", block_size=400)
    return found


def describe(sft: StagePlays, grpo: StagePlays) -> str:
    """Cells of a table: levels sampled (greedy), then the changes."""
    cells = []
    for one in (sft, grpo):
        sampled, greedy = (statistics.fmean(one.column("reward", mode)) for mode in MODES)
        cells.append(f"{sampled:.3f} ({greedy:.3f})")
    for mode in MODES:
        change = paired_interval(grpo.column("reward", mode), sft.column("reward", mode))
        cells.append(f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]")
    return " | ".join(cells)


def _flags(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=int, action="append", required=True, help="repeatable")
    parser.add_argument("--num-cases", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    quiet_libraries()
    tables, costs = [], []
    for budget in options.budget:
        path = options.out / str(budget)
        seconds = train(options, budget, path)
        costs.append(
            f"{budget} demonstrations per role: " + ", ".join(f"{k} {v:.0f}" for k, v in seconds.items())
        )
        sft, grpo = (score(path, stage, options.num_cases) for stage in ("sft", "grpo"))
        tables += [f"| {budget} | {role} | {describe(sft[role], grpo[role])} |" for role in sft]
    print("CPU seconds, " + "; ".join(costs) + "\n")
    print("| demonstrations per role | role | SFT | GRPO | GRPO - SFT | GRPO - SFT, greedy |")
    print("|---:|---|---|---|---|---|", *tables, sep="\n")


if __name__ == "__main__":
    main()
