"""`emads evaluate --tasks FOLDER` and `--suite NAME`: a run's role answers questions of others, greedily."""

import asyncio
from pathlib import Path

from evaluation.scoring.external_tasks import (
    FAMILY,
    SOLVERS,
    TaskFolder,
    read_suite,
    read_task_folder,
    sum_up_tasks,
)
from evaluation.scoring.outcomes import OutcomeFile, RoleOutcome, describe_solo
from evaluation.summary.tables import PlainTable, print_tables, role_title, short
from scenarios.base import Family, Scenario
from scenarios.tasks.imported import ROLE
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.engines.base import Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights
from training.runs.run_folder import Run
from training.stages.from_config import make_chat

MAX_TURNS = 8


def evaluate_folder(path: Path, folder: Path, *, stage: str, role: str) -> Path:
    """Play the questions of a folder.

    Raises:
        UserError: no usable question, or as `evaluate_tasks`.
    """
    return evaluate_tasks(
        path, folder.resolve().name, read_task_folder(folder), FAMILY, stage=stage, role=role
    )


def evaluate_suite(path: Path, name: str, count: int, *, stage: str, role: str) -> Path:
    """Play the first questions of a suite.

    Raises:
        UserError: unknown suite, its package is missing, or as `evaluate_tasks`.
    """
    tasks, family = read_suite(name, count)
    return evaluate_tasks(path, f"{name}-{count}", tasks, family, stage=stage, role=role)


def evaluate_tasks(
    path: Path, name: str, tasks: TaskFolder, family: Family, *, stage: str = "marl", role: str = "cto"
) -> Path:
    """Play every question with the role's weights and the calculator; returns the file of outcomes.

    A killed call goes on where it was.

    Raises:
        UserError: no weights, or outcomes of other questions.
    """
    quiet_libraries()
    run = Run.open(path)
    model, tokenizer = load_weights(run, stage, role)
    chat = make_chat(tokenizer, run.config)
    engine = TransformersEngine(end_id=chat.end_id, seed=run.config.seed)
    engine.set_policy(role, model, version=f"{role}@{stage}")
    tokens = run.config.grpo.max_completion_tokens
    most = int(model.config.max_position_embeddings) - 2 * MAX_TURNS * tokens
    sampling = Sampling(temperature=0.0, max_completion_tokens=tokens)

    async def play_all(part: list[tuple[int, Scenario]]) -> list[SoloEpisode]:
        plays = (
            play_solo(
                scenario,
                policy=role,
                engine=engine,
                chat=chat,
                sampling=sampling,
                session=f"tasks/{place}",
                max_turns=MAX_TURNS,
                families={family.name: family},
                roles=SOLVERS,
            )
            for place, scenario in part
        )
        return list(await asyncio.gather(*plays))

    def play_block(start: int, end: int) -> list[RoleOutcome]:
        part = list(enumerate(tasks.scenarios))[start:end]
        fitting = [one for one in part if len(chat.open(ROLE, one[1].brief, with_tools=True)) <= most]
        played = {episode.scenario.key: episode for episode in asyncio.run(play_all(fitting))}
        return [
            describe_solo(played[scenario.key], sector=str(scenario.facts["source"]))
            if scenario.key in played
            else _unfit(scenario)
            for _, scenario in part
        ]

    file = run.path / "scores" / "tasks" / f"{name}-{stage}-{role}.jsonl"
    outcomes = OutcomeFile(file, RoleOutcome).complete([one.key for one in tasks.scenarios], play_block)
    _show(f"{name}: {role_title(role)} after {stage}", outcomes)
    if tasks.rejected:
        print(f"left out: {len(tasks.rejected)} rows, the first: {tasks.rejected[0]}")
    if tasks.num_with_files:
        print(f"left out: {tasks.num_with_files} rows that come with a file")
    print(f"outcomes: {file}")
    return file


def _unfit(scenario: Scenario) -> RoleOutcome:
    """A question that the model has no positions for: not answered."""
    return RoleOutcome(
        key=scenario.key,
        difficulty=scenario.difficulty,
        sector=str(scenario.facts["source"]),
        reward=0.0,
        exact=False,
        feasible=False,
        failure="longer than the model reads",
        parts={},
        turns=0,
        tool_calls=0,
        failed_calls=0,
        tokens=0,
        truncated=False,
        well_formed=False,
        escalated=False,
        answer="",
    )


def _show(title: str, outcomes: list[RoleOutcome]) -> None:
    rows = (
        (name, str(one.n), f"{short(one.mean)} [{short(one.low)}, {short(one.high)}]")
        for name, one in sum_up_tasks(outcomes).items()
    )
    titles = ("questions", "n", "right [95 % interval]")
    print_tables([PlainTable(title=title, titles=titles, rows=tuple(rows))])
