"""emads for the `verifiers` library: role families, seats of the team and tasks, one agent with tools.

    vf-validate emads-roles --taskset.family cto --taskset.count 8 --runtime.type subprocess
    vf-eval emads-roles --env.agent.harness.id null --env.agent.runtime.type subprocess --model MODEL

The reward is the role reward: the calls of the trace are made again (tools are deterministic), then the last
reply is verified. A task's data names its scenario and holds no truth.
"""

import json
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import verifiers.v1 as vf
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent, Tool

from serving.environments.plays import Kind, Play, ScenarioName, open_kinds, start_play

__all__ = ["EmadsTaskset"]


class EmadsConfig(vf.TasksetConfig):
    """Which scenarios are played."""

    family: str = "cto"
    """A role family, a seat of the team as team_cto, or a task family; several with commas take turns."""
    folders: list[str] = []
    """Folders of `emads import`; their tasks are families by the name of the import."""
    split: str = "train"
    seed: int = 0
    count: int = 100
    difficulties: list[int] = [1, 2, 3]


class EmadsData(vf.TaskData):
    """One scenario by name, and the folders of imported tasks."""

    scenario: ScenarioName
    folders: tuple[str, ...] = ()

    def start(self) -> Play:
        """A new play of the scenario."""
        return start_play(self.scenario, _open_kinds(self.folders))


class EmadsState(vf.State):
    """State of a rollout for the tool server: the task that it plays."""

    task: dict[str, Any] = {}


@lru_cache(maxsize=16)
def _open_kinds(folders: tuple[str, ...]) -> dict[str, Kind]:
    return open_kinds(*map(Path, folders))


class EmadsTools(vf.Toolset[vf.SharedToolsetConfig, EmadsState]):
    """The tools of the rollout's own scenario, behind MCP."""

    TOOL_PREFIX = None

    def register(self, mcp: MCPServer) -> None:
        server = cast(Any, mcp)  # the catalogue depends on the rollout: replace the two protocol handlers
        server.list_tools = self._with_state(self.list_tools)
        server.call_tool = self._with_state(self.call_tool)

    def _play(self) -> Play:
        return EmadsData.model_validate(self.state.task).start()

    async def list_tools(self) -> list[Tool]:
        """The scenario's tools; none before a rollout."""
        if not self.state.task:
            return []
        return [
            Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
            for tool in self._play().tools
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult:
        """Return the tool's observation."""
        text = self._play().call(name, arguments)
        return CallToolResult(content=[TextContent(type="text", text=text)])


class EmadsTask(vf.Task[EmadsData, EmadsState]):
    """One scenario."""

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trace.state.task = self.data.model_dump(mode="json", include={"scenario", "folders"})

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Return whether the demonstration is right (a seat's: the best known) and silence earns nothing."""
        play, kind = self.data.start(), _open_kinds(self.data.folders)[self.data.scenario.family]
        steps = kind.family.demonstrate(play.scenario, random.Random(0))
        for step in steps[:-1]:
            assert step.call is not None
            play.call(step.call.name, step.call.arguments)
        gold, empty = play.answer(steps[-1].text).verdict, self.data.start().answer("").verdict
        optimum, known = kind.family.certify(play.scenario)
        is_best = gold.exact or gold.reward == optimum == known
        return is_best and gold.reward > 0 == empty.reward

    @vf.reward(weight=1.0)
    async def role_reward(self, trace: vf.Trace) -> float:
        """The role reward; its parts go into the metrics."""
        play = self.data.start()
        for message in trace.messages:
            for call in getattr(message, "tool_calls", None) or ():
                play.call(call.name, _read_arguments(call.arguments))
        outcome = play.answer(trace.last_reply)
        for name, value in outcome.as_fields().items():
            if isinstance(value, bool | int | float):
                trace.record_metric(name, float(value))
        return outcome.reward


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class EmadsTaskset(vf.Taskset[EmadsTask, EmadsConfig]):
    """The first `count` scenarios of a family, difficulties in turn."""

    @classmethod
    def toolsets(cls, config: EmadsConfig) -> list[vf.Toolset]:
        return [EmadsTools(vf.SharedToolsetConfig())]

    def load(self) -> Iterator[EmadsTask]:
        config = self.config
        families = config.family.split(",")
        for position in range(config.count):
            index = position // len(families)
            name = ScenarioName.model_validate(
                {
                    "family": families[position % len(families)],
                    "split": config.split,
                    "seed": config.seed,
                    "index": index,
                    "difficulty": config.difficulties[index % len(config.difficulties)],
                }
            )
            data = EmadsData(name="", scenario=name, folders=tuple(config.folders))
            play = data.start()
            system, user = (message["content"] for message in play.messages)
            told = {"name": play.scenario.key, "system_prompt": system, "prompt": user}
            yield EmadsTask(data.model_copy(update=told), config.task)


if __name__ == "__main__":
    EmadsTools.run()
