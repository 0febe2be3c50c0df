"""Scenarios as an OpenEnv environment: reset draws a scenario, a step is a tool call or the answer.

Needs the package openenv in an environment of its own, since it wants an older MCP SDK than `emads serve`;
`make interop` builds one.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field

from serving.environments.plays import KINDS, Kind, Play, ScenarioName, start_play

MOST_TASKS = 1_000_000  # indices that the task API names; seeds give as many again each


class PlayAction(Action):
    """A call of `tool` with `arguments`, or the text of the `answer`, which ends the episode."""

    tool: str = Field(default="", max_length=200, description="name of the tool to call; empty for an answer")
    arguments: dict[str, Any] = Field(default_factory=dict, description="the tool's arguments")
    answer: str = Field(default="", description="the final answer, where no tool is called")


class PlayObservation(Observation):
    """Texts for the player: the first messages and tools after a reset, then the tool's observations."""

    messages: list[dict[str, str]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    text: str = ""


class PlayState(State):
    """Where the episode stands; it names the scenario and tells no truth."""

    scenario: dict[str, Any] = Field(default_factory=dict)


class PlayEnvironment(Environment[PlayAction, PlayObservation, PlayState]):
    """One play at a time: `reset(family, split, seed, index, difficulty)`, then steps."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, kinds: Mapping[str, Kind] = KINDS, family: str = "cto") -> None:
        super().__init__()
        self._kinds, self._family = kinds, family
        self._play: Play | None = None
        self._state = PlayState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        family: str | None = None,
        split: str = "train",
        index: int = 0,
        difficulty: int = 1,
        **_unused: Any,
    ) -> PlayObservation:
        """Open a scenario; without a seed that of seed 0.

        Raises:
            UserError, ValidationError: no such scenario.
        """
        values = {"split": split, "seed": seed or 0, "index": index, "difficulty": difficulty}
        name = ScenarioName.model_validate({"family": family or self._family, **values})
        self._play = play = start_play(name, self._kinds)
        self._state = PlayState(
            episode_id=episode_id or uuid.uuid4().hex, step_count=0, scenario=name.model_dump()
        )
        return PlayObservation(
            messages=play.messages, tools=[tool.as_chat_tool() for tool in play.tools], reward=0.0
        )

    def step(self, action: PlayAction, timeout_s: float | None = None, **_unused: Any) -> PlayObservation:
        """Call the tool, or answer. The reward comes at the end, its parts in the metadata.

        Raises:
            RuntimeError: before a reset.
        """
        if self._play is None:
            raise RuntimeError("call reset first")
        self._state = self._state.model_copy(update={"step_count": self._state.step_count + 1})
        text = ""
        if action.tool:
            text = self._play.call(action.tool, action.arguments)
        else:
            self._play.answer(action.answer)
        outcome = self._play.outcome
        fields = {} if outcome is None else outcome.as_fields()
        return PlayObservation(
            text=text, done=self._play.is_done, reward=float(fields.get("reward", 0.0)), metadata=fields
        )

    @property
    def state(self) -> PlayState:
        return self._state

    def close(self) -> None:
        self._play = None

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name="emads",
            description=f"Company decisions with exactly known optima: {', '.join(self._kinds)}",
            version="1.0.0",
        )

    def list_splits(self) -> list[Any]:
        """The splits that are played; the test split is sealed."""
        return ["train", "validation"]

    def num_tasks(self, split: str) -> int:
        """Return the number of indices that the task API names."""
        return MOST_TASKS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """The reset arguments of one task."""
        return {"family": self._family, "split": split, "index": index}

    def list_tasks(self, split: str) -> list[Any]:
        """The first hundred tasks."""
        return [self.get_task(split, index) for index in range(100)]


def make_app(kinds: Mapping[str, Kind] = KINDS, family: str = "cto") -> FastAPI:
    """OpenEnv's own server around the environment; each WebSocket is a session of its own."""
    app = create_app(
        lambda: PlayEnvironment(kinds, family),
        PlayAction,
        PlayObservation,
        env_name="emads",
        max_concurrent_envs=64,
        state_cls=PlayState,
    )
    assert isinstance(app, FastAPI)
    return app
