"""Measures which credit of reports gives the clearest gradient: whether cases pull a seat the same way.

    python -m benchmarks.joint.credit_signal runs/smollm2 --stage grpo --cases 8 --seat cto --seat coo

Plays training cases as a joint step does and differentiates every report of a seat by itself: the gradient of
the log-probability of its own tokens, up to the report. What a case says under some credit is their sum with
that credit's advantages as weights, so that one pass serves all. Credits: the team's (by the run's
`marl.credit.scheme`) and, to compare with, the report's own verified score. Estimators: `dr_grpo` and `grpo`.
Per combination it prints the mean cosine of two cases, and the cosine of what one half of the cases says with
what the other half says, as it is and as Adam would go with `marl.adam_epsilon`.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.roles.gradient_signal import half_cosine, split_signal, text_gradient
from roles.team import SPECIALISTS, TEAM_ROLES
from simulator.records import Trajectory
from training.config.run_config import RunConfig
from training.models.base_model import quiet_libraries, use_threads
from training.models.engine_factory import serve
from training.models.weights import load_team, load_weights
from training.rl.credit import ESTIMATORS, SCHEMES
from training.rl.hosts import cut_jobs
from training.rl.records import ScoredGroup
from training.rl.team.algorithm import choose_player, score_report
from training.rl.team.score import TeamScorer
from training.runs.run_folder import Run
from training.runs.workers import keep_freed_memory, return_freed_memory
from training.stages.from_config import choose_game, joint_cases, make_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReports:
    """One seat's reports on one case.

    Example: CaseReports(gradients=torch.zeros(4, 9), tokens=[80, 91, 75, 80], team=[0.1, 0, 0, 0.1],
                         own=[1.0, 0, 0, 0.5])
    """

    gradients: Tensor  # (sets, weights): of each report's log-probability
    tokens: list[int]  # own ones of each report
    team: list[float]  # scores by the credit scheme
    own: list[float]  # by the report's own verifier, in [0, 1]


def main(arguments: Sequence[str]) -> int:
    """Play once, differentiate every report, print a line per seat, credit and estimator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", default="grpo")
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seat", action="append", choices=list(SPECIALISTS))
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    use_threads(run.config.threads_per_worker)
    start = time.perf_counter()
    groups = play(run, options.stage, options.cases)
    print(f"{len(groups)} cases, {time.perf_counter() - start:.0f} s", flush=True)
    return_freed_memory()
    for seat in options.seat or list(SPECIALISTS):
        model, _ = load_weights(run, options.stage, seat)
        cases = [differentiate(model, seat, group, run.config) for group in groups]
        for line in compare(cases, run.config):
            print(f"{seat}, {line}", flush=True)
    return 0


def play(run: Run, stage: str, count: int) -> list[ScoredGroup]:
    """Scored groups of the next training cases, played in the blocks of a joint step."""
    config = run.config.changed(marl__scenarios_per_step=count)
    models, tokenizer = load_team(run, stage)
    chat = make_chat(tokenizer, config)
    player = choose_player(config.marl, chat=chat, roles=tuple(TEAM_ROLES), make_game=choose_game(config))
    jobs = cut_jobs(joint_cases(config, 0), "credit-signal", block_size=config.rollouts.block_size)
    with serve(run, models, stage, end_id=chat.end_id) as engine:
        played = [player.play(engine, job.cases, job.stream, job.first_place) for job in jobs]
    scheme = SCHEMES[config.marl.credit.scheme]()
    scorer = TeamScorer(weights=config.team_reward, value_offers=scheme.value_offers)
    return scorer.score(list(chain.from_iterable(played)))


def differentiate(model: Any, seat: str, group: ScoredGroup, config: RunConfig) -> CaseReports:
    """The gradient of every report of the seat on one case, and its scores."""
    episodes = [one.first.episode for one in group.report_sets]
    found = [
        report_gradient(
            model,
            one.trajectories[seat],
            one.trajectories[seat].count_turns_to(one.reports[seat]),
            config.marl.temperature,
        )
        for one in episodes
    ]
    scheme = SCHEMES[config.marl.credit.scheme]()
    return CaseReports(
        gradients=torch.stack([gradient for gradient, _ in found]),
        tokens=[tokens for _, tokens in found],
        team=list(scheme.specialist_scores(seat, group.report_sets)),
        own=[score_report(group.scenario, seat, one) for one in episodes],
    )


def report_gradient(
    model: Any, trajectory: Trajectory, num_turns: int, temperature: float
) -> tuple[Tensor, int]:
    """Gradient of the log-probability of the own tokens of the first turns, (weights,), and their number."""
    turns = trajectory.turns[:num_turns]
    length = sum(len(turn.context_ids) + len(turn.completion_ids) for turn in turns)
    ids, own = trajectory.token_ids[:length], trajectory.loss_mask[:length]
    return text_gradient(model, [(ids, own)], [1.0], temperature), sum(own)


def compare(cases: Sequence[CaseReports], config: RunConfig) -> Iterator[str]:
    """A line per credit and estimator."""
    for credit in ("team", "own"):
        groups = [case.team if credit == "team" else case.own for case in cases]
        for estimator in ("dr_grpo", "grpo"):
            advantages = ESTIMATORS[estimator](groups, list)
            gradients = torch.stack(
                [
                    (torch.tensor(of_case)[:, None] * case.gradients).sum(0) / sum(case.tokens)
                    for of_case, case in zip(advantages, cases, strict=True)
                ]
            )
            signal, noise, cosine = split_signal(gradients)
            yield (
                f"{credit} score, {estimator}: mean cosine of two cases"
                f" {cosine:+.3f}, noise / signal {noise / signal if signal > 0 else float('nan'):.1f},"
                f" halves {half_cosine(gradients):+.3f},"
                f" as Adam goes {half_cosine(gradients, config.marl.adam_epsilon):+.3f}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
