"""Inspect AI tasks, one per role: any model that Inspect can call, or a run of ours, on sealed scenarios.

    inspect eval examples/inspect_tasks.py@cto --model openai-api/vllm/my-model -T count=100
    inspect eval examples/inspect_tasks.py@cto --model none -T run=runs/demo
    inspect view

Needs `pip install 'emads[inspect]'` in an environment of its own (inspect-ai pins an older fsspec than
constraints.txt). The scorer is the role's own verifier; no model judges a model.
"""

import json
import random
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, chain, generate, solver, system_message, use_tools
from inspect_ai.tool import ToolDef, ToolError, ToolParams

from roles.registry import ROLES
from scenarios.base import Scenario, ToolCall
from scenarios.base import ToolError as RefusedError
from scenarios.registry import FAMILIES
from scenarios.tool_executor import ToolExecutor


@task
def cto(count: int = 50, difficulty: int = 1, seed: int = 0, run: str = "", stage: str = "marl") -> Task:
    """Choose an architecture."""
    return make_task("cto", count, difficulty, seed, run, stage)


@task
def coo(count: int = 50, difficulty: int = 1, seed: int = 0, run: str = "", stage: str = "marl") -> Task:
    """Assign and order the work."""
    return make_task("coo", count, difficulty, seed, run, stage)


@task
def risk(count: int = 50, difficulty: int = 1, seed: int = 0, run: str = "", stage: str = "marl") -> Task:
    """Find the exposures and choose controls."""
    return make_task("risk", count, difficulty, seed, run, stage)


@task
def cost(count: int = 50, difficulty: int = 1, seed: int = 0, run: str = "", stage: str = "marl") -> Task:
    """Buy at least cost within quality."""
    return make_task("cost", count, difficulty, seed, run, stage)


@task
def reconcile(
    count: int = 50, difficulty: int = 1, seed: int = 0, run: str = "", stage: str = "marl"
) -> Task:
    """Decide between stakeholders."""
    return make_task("reconcile", count, difficulty, seed, run, stage)


def make_task(role: str, count: int, difficulty: int, seed: int, run: str, stage: str) -> Task:
    """The role's first `count` test scenarios; with `run` its own weights play on our engine."""
    family = FAMILIES[role]
    scenarios = {
        one.key: one for one in (family.generate("test", seed, index, difficulty) for index in range(count))
    }
    samples = [
        Sample(
            id=key,
            input=one.brief,
            target=family.demonstrate(one, random.Random(0))[-1].text,  # seen by the scorer alone
            metadata={"difficulty": one.difficulty},
        )
        for key, one in scenarios.items()
    ]
    player = our_engine(role, scenarios, run, stage) if run else any_model(role, scenarios)
    return Task(
        name=f"emads_{role}",
        dataset=MemoryDataset(samples, name=f"emads {role}, difficulty {difficulty}"),
        solver=player,
        scorer=verified(role, scenarios),
    )


def any_model(role: str, scenarios: dict[str, Scenario]) -> Solver:
    """The role's mandate and tools for whatever model Inspect calls."""
    return chain(
        system_message(ROLES[role].mandate), offer_tools(role, scenarios), generate(tool_calls="loop")
    )


@solver
def offer_tools(role: str, scenarios: dict[str, Scenario]) -> Solver:
    """The role's tools on the sample's own facts."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        desk = ToolExecutor(FAMILIES[role], scenarios[str(state.sample_id)])
        tools = [make_tool(desk, one.name, one.description, one.parameters) for one in ROLES[role].tools]
        return await use_tools(*tools)(state, generate)

    return solve


def make_tool(desk: ToolExecutor, name: str, description: str, parameters: dict[str, Any]) -> ToolDef:
    """One of our tools as Inspect's."""

    async def execute(**arguments: Any) -> str:
        try:
            return desk(ToolCall(name=name, arguments=arguments))
        except RefusedError as error:
            raise ToolError(str(error)) from None

    return ToolDef(
        execute, name=name, description=description, parameters=ToolParams.model_validate(parameters)
    )


@solver
def our_engine(role: str, scenarios: dict[str, Scenario], run: str, stage: str) -> Solver:
    """The weights of a run play greedily on the embedded engine; all samples share its batches."""
    from simulator.agents.solo import play_solo
    from simulator.engines.base import Sampling
    from simulator.engines.embedded.engine import TransformersEngine
    from training.models.weights import load_weights
    from training.runs.run_folder import Run
    from training.stages.from_config import make_chat

    opened = Run.open(Path(run))
    model, tokenizer = load_weights(opened, stage, role)
    chat = make_chat(tokenizer, opened.config)
    engine = TransformersEngine(end_id=chat.end_id, seed=opened.config.seed)
    engine.set_policy(role, model, version=f"{role}@{stage}")
    limits = opened.config.grpo

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        scenario = scenarios[str(state.sample_id)]
        episode = await play_solo(
            scenario,
            policy=role,
            engine=engine,
            chat=chat,
            sampling=Sampling(temperature=0.0, max_completion_tokens=limits.max_completion_tokens),
            session=f"inspect/{scenario.key}",
            max_turns=limits.max_turns,
            max_failed_calls=limits.max_failed_calls,
        )
        for place, turn in enumerate(episode.trajectory.turns):
            if place:
                observed = chat.decode(turn.context_ids)
                state.messages.append(ChatMessageTool(content=observed, function="tool"))
            state.messages.append(ChatMessageAssistant(content=turn.text, model=f"{role}@{stage}"))
        state.output = ModelOutput.from_content(f"{role}@{stage}", episode.trajectory.final_text)
        state.completed = True
        return state

    return solve


@scorer(metrics={"reward": [mean(), stderr()], "exact": [accuracy(), stderr()]})
def verified(role: str, scenarios: dict[str, Scenario]) -> Scorer:
    """The role's verifier: its reward in [0, 1], and whether the choice is the exact optimum."""

    async def score(state: TaskState, target: Target) -> Score:
        verdict = FAMILIES[role].verify(scenarios[str(state.sample_id)], state.output.completion)
        return Score(
            value={"reward": verdict.reward, "exact": float(verdict.exact)},
            answer=state.output.completion,
            explanation=verdict.explanation,
            metadata={"parts": json.dumps(dict(verdict.parts)), "failure": verdict.failure or ""},
        )

    return score
