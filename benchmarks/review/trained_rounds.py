"""Review rate and missed errors over rounds of review of one trained role, for every way of choosing cases.

    python -m benchmarks.review.trained_rounds runs/feedback --seeds 0 1 2

A seed's role starts from its SFT weights (FOLDER/seed-N, as benchmarks.review.feedback makes them). In every
round it answers new cases several times; an exact reviewer corrects or approves the most frequent answer to
as many cases, in the way's order, as leave unseen errors in at most 5 % of them (known in hindsight), or to
`--share` of them; and the role is trained, from its start, on all corrections and approvals so far. An error
is an answer that the verifier rewards with less than `--least`. FOLDER/rounds.jsonl gets a line per seed and
way, and what it holds is not measured again; `--show` prints the table alone.
"""

import argparse
import json
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.review.feedback import SOURCE, copy_run, list_settings, start_run
from benchmarks.review.selection import (
    WAYS,
    Candidate,
    RoundSettings,
    Verified,
    Way,
    measure_uncertainty,
    review_round,
)
from roles.registry import ROLES
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from simulator.line_files import LineFile, read_lines
from training.config.run_config import FIRST_REVIEW_INDEX
from training.data.demonstrations import role_scenario
from training.feedback.labels import Provenance, add_label
from training.feedback.reviewers import EXACT, LabelWriter, claimed_worth
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_folder import Run
from training.stages.feedback import prepare_stage
from training.stages.from_config import make_chat
from training.stages.table import train_stage

FIRST = 1_800_000  # first case of the rounds after those of the review queue: labels of others end before
STRIDE = 10_000  # cases between two seeds
COLUMNS = ("value", "errors", "missed", "needed", "escalated", "escalated_missed")


def main() -> None:
    """Measure what is not in the file yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, help="a model per role; default: the default config")
    parser.add_argument("--role", default="cto")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sft-steps", type=int, default=200)
    parser.add_argument("--cases", type=int, default=150, help="per round")
    parser.add_argument("--plays", type=int, default=4, help="per case")
    parser.add_argument("--share", type=float, help="of the cases that is reviewed; else as many as needed")
    parser.add_argument("--least", type=float, default=0.5, help="reward under which an answer is an error")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    path = options.folder / "rounds.jsonl"
    if not options.show:
        quiet_libraries()
        done = {(one["seed"], one["way"]) for one in map(json.loads, read_lines(path))}
        for seed in options.seeds:
            for way in WAYS:
                if (seed, way) in done:
                    continue
                rounds = play_rounds(start_run(seed, options), way, seed, options)
                line = {"seed": seed, "way": way, "rounds": rounds}
                with LineFile(path) as file:
                    file.add(json.dumps(line).encode())
                print(json.dumps(line), flush=True)
    print_table([json.loads(line) for line in read_lines(path)])


def play_rounds(run: Run, way: Way, seed: int, options: argparse.Namespace) -> list[dict[str, float]]:
    """All rounds with one way of choosing; the cases are the same for every way."""
    settings = RoundSettings(
        cases_per_round=options.cases,
        plays_per_case=options.plays,
        review_share=options.share,
        least_value=options.least,
    )
    history: list[Verified] = []
    results = []
    with tempfile.TemporaryDirectory(prefix="emads-rounds-") as scratch:
        labels = Path(scratch) / "labels.jsonl"
        played_by, stage = run, SOURCE
        for number in range(settings.num_rounds):
            first = FIRST + seed * STRIDE + number * settings.cases_per_round
            plays, writer = play_cases(played_by, stage, options.role, first, settings)
            candidates = [make_candidate(key, of_case) for key, of_case in plays.items()]
            values = {key: find_own(of_case).verdict.reward for key, of_case in plays.items()}
            rng = random.Random(f"{seed}/{way}/{number}")
            result, reviewed = review_round(way, candidates, values, history, settings, rng=rng)
            results.append(asdict(result))
            ruled = [writer.write([find_own(plays[one.key])], number=number) for one in reviewed]
            add_label(labels, *[label for label in ruled if label is not None])
            if number + 1 < settings.num_rounds and labels.is_file():
                played_by, stage = copy_run(run, options.role, Path(scratch) / f"{number}", 1), "corrections"
                prepare_stage(played_by, stage, options.role, labels, list_settings(stage), resume=False)
                train_stage(played_by.path, "corrections", options.role)
    return results


def play_cases(
    run: Run, stage: str, role: str, first: int, settings: RoundSettings
) -> tuple[dict[str, list[SoloEpisode]], LabelWriter]:
    """Plays of every case by its key, and who labels them."""
    config = run.config
    model, tokenizer = load_weights(run, stage, role)
    chat, family = make_chat(tokenizer, config), families(config.model.prompts)[role]
    player = SoloPlayer(config=config.grpo, chat=chat, families={family.name: family})
    engine = serve_roles(TransformersEngine(end_id=chat.end_id, seed=config.seed), {role: model}, 0)
    style, data = config.model.prompts, config.data
    scenarios = [
        role_scenario(role, "train", data.seed, FIRST_REVIEW_INDEX + first + i, data.difficulties, style)
        for i in range(settings.cases_per_round)
    ]
    repeated = [scenario for scenario in scenarios for _ in range(settings.plays_per_case)]
    played = player.play_once(engine, repeated, f"rounds/{first}", temperature=1.0)
    found: dict[str, list[SoloEpisode]] = {}
    for one in played:
        if isinstance(one, SoloEpisode):
            found.setdefault(one.scenario.key, []).append(one)
    writer = LabelWriter(
        kind="correction",
        reviewer=EXACT,
        role=ROLES[role],
        family=family,
        chat=chat,
        provenance=Provenance(run=config.name, weights=stage, style=style, source="simulated"),
    )
    return found, writer


def make_candidate(key: str, plays: Sequence[SoloEpisode]) -> Candidate:
    """A case as it is known before its review; predicted quality is what an answer claims to be worth."""
    answers = [one.trajectory.final_text for one in plays]
    return Candidate(
        key=key,
        group=f"difficulty {key.rpartition('/')[2]}",
        uncertainty=measure_uncertainty(answers),
        qualities=tuple(claimed_worth(answer) for answer in answers),
    )


def find_own(plays: Sequence[SoloEpisode]) -> SoloEpisode:
    """The first play of the most frequent answer: what the role stands for."""
    answer = Counter(one.trajectory.final_text for one in plays).most_common(1)[0][0]
    return next(one for one in plays if one.trajectory.final_text == answer)


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """Means over seeds by way and round."""
    print("| chosen by | seeds | round | " + " | ".join(COLUMNS) + " |")
    print("|---|---:|---:|" + "---:|" * len(COLUMNS))
    for way in WAYS:
        seeds = [one["rounds"] for one in lines if one["way"] == way]
        for number, results in enumerate(zip(*seeds, strict=True), 1):
            shown = [f"{statistics.fmean(one[name] for one in results):.3f}" for name in COLUMNS]
            print(f"| {way} | {len(seeds)} | {number} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
