"""From a config to a finished run: stages as tasks over worker processes, then summary, episodes and report.

base -> sft/ROLE -> grpo/ROLE -> marl;  evaluations run as soon as their weights exist
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emads.commands.evaluation_store import (
    evaluate_single,
    forget_scores,
    forget_scores_without_plays,
    store_details,
)
from evaluation.comparison.seeds import compare_seeds, read_seed, write_across
from evaluation.minutes.transcript import (
    Transcript,
    render_side_by_side_text,
    transcript,
    write_side_by_side,
)
from evaluation.report.details import choose_pairs
from evaluation.report.page import write_report
from evaluation.scoring.assess import play_team
from evaluation.scoring.gates import failed_gates
from evaluation.scoring.run_table import summary_tables
from evaluation.scoring.scores import RoleScores, TeamScores, read_scores
from evaluation.scoring.summary import build_summary, combine_seeds, read_summary, write_summary
from roles.errors import UserError
from roles.registry import ROLES
from simulator.export.episode_files import episode_to_dict
from simulator.reward import score_episode
from training.config.run_config import RunConfig
from training.data.demonstrations import team_scenario
from training.models.adapters import list_owners, owner_of, owners_of
from training.models.base_model import quiet_libraries
from training.models.weights import Team, load_team, stage_marker
from training.roles.alarm_records import alarms_by_stage, read_alarms
from training.runs.faults import Fault
from training.runs.provenance import find_versions
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages import stages

NUM_SHOWN_EPISODES = 6  # before/after pairs in the report
GATE_FAILURE = 3  # exit status of a demo that ran to its end with red gates


def train_base(run: Run, config: RunConfig) -> None:
    """Tokenizer and base weights."""
    _run(run, [_base(run)], "base")


def train_sft(run: Run, config: RunConfig, roles: Sequence[str]) -> None:
    """SFT of the given roles, after the base."""
    _run(run, [_base(run), *(_sft(run, owner) for owner in owners_of(config.model, roles))], "SFT")


def train_grpo(run: Run, config: RunConfig, roles: Sequence[str]) -> None:
    """GRPO of the given roles.

    Raises:
        UserError: a role has no SFT weights yet.
    """
    _require(run, "sft", roles)
    _run(run, [_grpo(run, owner, after=()) for owner in owners_of(config.model, roles)], "GRPO")


def train_marl(run: Run, config: RunConfig) -> None:
    """Joint training of the team.

    Raises:
        UserError: a role has no GRPO weights yet.
    """
    _require(run, "grpo", tuple(ROLES))
    _run(run, [_marl(run, after=())], "MARL")


def evaluate_run(path: Path, *, again: bool = False) -> None:
    """Score every finished stage on the sealed test split; writes summary.json and prints its tables.

    What is stored is kept, down to single plays; `again` plays everything anew.
    """
    run = Run.open(path)
    forget_scores(run) if again else forget_scores_without_plays(run)
    tasks = [_baselines(run)]
    for stage, source in stages.EVALUATED_AFTER.items():
        roles = [role for role in ROLES if _is_trained(run, source, role)]
        tasks += [_evaluate_role(run, stage, role, after=()) for role in roles]
        if len(roles) == len(ROLES):
            tasks.append(_evaluate_team(run, stage, after=()))
    if run.is_done("marl"):
        tasks.append(_evaluate_single(run, after=()))
    start = time.monotonic()
    _run(run, tasks, "evaluation")
    write_summary(path, summarise(run, wall_s=_add_wall_time(run, time.monotonic() - start)))
    store_details(run)
    if run.is_done("marl"):
        write_episodes_side_by_side(run)
    print_summary(read_summary(path))


def run_demo(
    path: Path, config: RunConfig, seeds: int, controls: bool, resume: bool, faults: Sequence[Fault] = ()
) -> int:
    """All stages for every seed, then tables, one episode before and after, and the report.

    Returns: 0 where every gate is green, else 3.
    """
    summaries: list[dict[str, Any]] = []
    folders: list[Path] = []
    for number in range(seeds):
        seed = config.seed + number
        seeded = config.model_copy(
            update={"seed": seed, "data": config.data.model_copy(update={"seed": config.data.seed + number})}
        )
        folder = path if number == 0 else path / f"seed-{seed}"
        folders.append(folder)
        run = replace(Run.create(folder, seeded, resume=resume), faults=tuple(faults))
        summaries.append(
            run_all(run, controls=controls, title=f"demo (seed {seed})" if seeds > 1 else "demo")
        )
    summary = combine_seeds(summaries) if seeds > 1 else summaries[0]
    write_summary(path, summary)
    if seeds > 1:
        scored = [read_seed(folder, one["seed"]) for folder, one in zip(folders, summaries, strict=True)]
        repeats = config.evaluation.num_bootstrap
        write_across(path, compare_seeds(scored, same_scenarios=False, num_bootstrap=repeats))
    report = write_report(path)
    print_summary(summary)
    _print_episode(Run.open(path))
    print_alarms(Run.open(path))
    failed = failed_gates(summary)
    print(f"\nsummary: {path / 'summary.json'}\nreport:  {report}")
    print(f"gates:   {'all green' if not failed else 'RED: ' + ', '.join(failed)}")
    return GATE_FAILURE if failed else 0


def run_all(run: Run, *, controls: bool, title: str) -> dict[str, Any]:
    """Every stage and evaluation of one run that is not done yet; its summary."""
    start = time.monotonic()
    _run(run, demo_tasks(run, controls=controls), title)
    wall_s = _add_wall_time(run, time.monotonic() - start)
    write_episodes_side_by_side(run)
    summary = summarise(run, wall_s=wall_s)
    write_summary(run.path, summary)
    store_details(run)
    return summary


def role_tasks(run: Run) -> dict[str, Task]:
    """Every training stage of a run as a task, by name."""
    owners = list_owners(run.config.model)
    tasks = [_base(run)]
    for owner in owners:
        tasks += [_sft(run, owner), _grpo(run, owner, after=(f"sft/{owner}",))]
    tasks.append(_marl(run, after=tuple(f"grpo/{owner}" for owner in owners)))
    return {task.name: task for task in tasks}


def demo_tasks(run: Run, *, controls: bool) -> list[Task]:
    """The whole run as tasks, the critical path first."""
    owners = list_owners(run.config.model)
    grpo = tuple(f"grpo/{owner}" for owner in owners)
    tasks = [_base(run)]
    for owner in owners:
        tasks += [_sft(run, owner), _grpo(run, owner, after=(f"sft/{owner}",))]
    tasks.append(_marl(run, after=grpo))
    tasks.append(_baselines(run))
    if controls:
        tasks += [_sft_more(run, owner) for owner in owners]
    for role in ROLES:
        tasks.append(_evaluate_role(run, "untrained", role, after=("base",)))
        owner = owner_of(run.config.model, role)
        tasks.append(_evaluate_role(run, "sft", role, after=(f"sft/{owner}",)))
        tasks.append(_evaluate_role(run, "grpo", role, after=(f"grpo/{owner}",)))
        if controls:
            tasks.append(_evaluate_role(run, "sft_more", role, after=(f"sft_more/{owner}",)))
    all_sft = tuple(f"sft/{owner}" for owner in owners)
    tasks.append(_evaluate_team(run, "untrained", after=("base",)))
    tasks.append(_evaluate_team(run, "sft", after=all_sft))
    tasks.append(_evaluate_team(run, "grpo", after=grpo))
    tasks.append(_evaluate_team(run, "marl", after=("marl",)))
    tasks.append(_evaluate_single(run, after=("marl",)))
    tasks += [_evaluate_role(run, "marl", role, after=("marl",)) for role in ROLES]
    return tasks


def summarise(run: Run, *, wall_s: float) -> dict[str, Any]:
    """The summary of all stored scores of a run."""
    role_scores: list[RoleScores] = []
    team_scores: list[TeamScores] = []
    for file in sorted((run.path / "scores").glob("*.jsonl")):
        for record in read_scores(file):
            if isinstance(record, RoleScores):
                role_scores.append(record)
            else:
                team_scores.append(record)
    if not role_scores:
        raise UserError(f"no scores in {run.path}; run `emads evaluate --run {run.path}` first")
    role_scores.sort(key=lambda record: list(ROLES).index(record.role))
    changed, signal = _training_facts(run)
    summary = build_summary(
        role_scores,
        team_scores,
        seed=run.config.seed,
        wall_s=wall_s,
        versions={name: version or "not installed" for name, version in find_versions().items()},
        weights_changed=changed,
        signal=signal,
        num_bootstrap=run.config.evaluation.num_bootstrap,
    )
    return summary | {"alarms": alarms_by_stage(run)}


def _training_facts(run: Run) -> tuple[dict[str, dict[str, bool]], dict[str, dict[str, float]]]:
    """Which weights each stage changed, and the share of groups that had an advantage."""
    changed: dict[str, dict[str, bool]] = {}
    signal: dict[str, dict[str, float]] = {}
    for stage in ("sft", "grpo"):
        markers = {role: stage_marker(run, stage, role) for role in ROLES}
        payloads = {r: run.read_payload(marker) for r, marker in markers.items() if run.is_done(marker)}
        changed[stage] = {role: bool(payload["weights_changed"]) for role, payload in payloads.items()}
        if stage == "grpo":
            signal[stage] = {role: float(payload["signal"]) for role, payload in payloads.items()}
    if run.is_done("marl"):
        payload = run.read_payload("marl")
        changed["marl"], signal["marl"] = payload["weights_changed"], payload["signal"]
    return changed, signal


def play_transcripts(
    run: Run, models: Team, tokenizer: Any, indices: Iterable[int], stage: str
) -> list[Transcript]:
    """Greedy episodes of test cases by their index, as readable transcripts."""
    config = run.config
    data = config.data
    cases = [
        team_scenario("test", data.seed, index, data.difficulties, data.conventions) for index in indices
    ]
    episodes = play_team(
        cases,
        engine=stages.team_engine(models, tokenizer, config, stage),
        chat=stages.make_chat(tokenizer, config),
        temperature=0.0,
        max_completion_tokens=config.marl.max_completion_tokens,
        stream="simulate",
        rounds=config.marl.rounds,
    )
    weights = stages.reward_weights(config)
    return [
        transcript(
            episode_to_dict(episode),
            _verdict_numbers(score_episode(case, episode, weights)),
            briefs={role: seat.brief for role, seat in case.seats.items()},
            label=f"{stage} team",
        )
        for case, episode in zip(cases, episodes, strict=True)
    ]


def _verdict_numbers(verdict: Any) -> dict[str, Any]:
    names = ("reward", "value", "consensus", "unresolved", "escalation", "explanation")
    return {name: getattr(verdict, name) for name in names}


def write_episodes_side_by_side(run: Run) -> None:
    """The first test cases before and after joint training; those that changed most come first."""
    quiet_libraries()
    indices = range(4 * NUM_SHOWN_EPISODES)
    before = play_transcripts(run, *load_team(run, "sft"), indices, "sft")
    after = play_transcripts(run, *load_team(run, "marl"), indices, "marl")
    pairs = list(zip(before, after, strict=True))
    write_side_by_side(run.path, choose_pairs(pairs, NUM_SHOWN_EPISODES))


def print_summary(summary: dict[str, Any]) -> None:
    """Tables and gates of every seed on the terminal."""
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 140)
    for one in summary.get("seeds", [summary]):
        if "seeds" in summary:
            console.rule(f"seed {one['seed']}")
        for table in summary_tables(one):
            console.print(table)


def print_alarms(run: Run) -> None:
    """The alarms that went off while roles were trained, one line each."""
    for line in read_alarms(run):
        print(f"ALARM {line}")


def _print_episode(run: Run) -> None:
    from evaluation.minutes.transcript import read_side_by_side

    pairs = read_side_by_side(run.path)
    if pairs:
        print("\nOne sealed case, the SFT team and the jointly trained team side by side:\n")
        print(render_side_by_side_text(*pairs[0], width=110))


def _run(run: Run, tasks: Sequence[Task], title: str) -> None:
    run_tasks(
        tasks,
        num_workers=run.config.num_workers,
        num_threads=run.config.threads_per_worker,
        title=title,
        faults=run.faults,
    )


def _add_wall_time(run: Run, seconds: float) -> float:
    """Seconds that the run took in all, these ones included."""
    spent_s = float(run.read_payload("wall")["wall_s"]) if run.is_done("wall") else 0.0
    run.mark_done("wall", {"wall_s": spent_s + seconds})
    return spent_s + seconds


def _require(run: Run, stage: str, roles: Sequence[str]) -> None:
    for role in roles:
        if not run.is_done(stage_marker(run, stage, role)):
            raise UserError(
                f"role {role!r} has no {stage} weights in {run.path};"
                f" first `emads train {stage} --run {run.path}`"
            )


def _is_trained(run: Run, stage: str, role: str) -> bool:
    return run.is_done(stage_marker(run, stage, role))


def _base(run: Run) -> Task:
    return Task(name="base", call=stages.train_base, args=(run.path,))


def _sft(run: Run, role: str) -> Task:
    return Task(
        name=f"sft/{role}",
        call=stages.train_sft,
        args=(run.path, role),
        after=("base",),
        units=run.config.sft.max_steps,
    )


def _sft_more(run: Run, role: str) -> Task:
    return Task(
        name=f"sft_more/{role}",
        call=stages.train_sft_more,
        args=(run.path, role),
        after=(f"grpo/{role}",),
        units=run.config.sft.max_steps // 2,
    )


def _grpo(run: Run, role: str, *, after: tuple[str, ...]) -> Task:
    units = 5 * run.config.grpo.max_steps
    return Task(name=f"grpo/{role}", call=stages.train_grpo, args=(run.path, role), after=after, units=units)


def _marl(run: Run, *, after: tuple[str, ...]) -> Task:
    units = 10 * run.config.marl.max_steps
    return Task(name="marl", call=stages.train_marl, args=(run.path,), after=after, units=units)


def _baselines(run: Run) -> Task:
    return Task(name="evaluate/baselines", call=stages.evaluate_baselines, args=(run.path,), units=10)


def _evaluate_role(run: Run, stage: str, role: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/{role}",
        call=stages.evaluate_role,
        args=(run.path, stage, role),
        after=after,
        units=20,
    )


def _evaluate_single(run: Run, *, after: tuple[str, ...]) -> Task:
    return Task(name="evaluate/single", call=evaluate_single, args=(run.path,), after=after, units=20)


def _evaluate_team(run: Run, stage: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/team",
        call=stages.evaluate_team,
        args=(run.path, stage),
        after=after,
        units=40,
    )
