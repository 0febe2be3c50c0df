"""The emads team for the `verifiers` library: five agents at one table, each configured by itself.

    vf-validate emads-team --taskset.count 8 --runtime.type subprocess
    vf-eval emads-team --model MODEL --env.reconcile.model OTHER

Specialists report, ReconcileGPT decides, specialists vote; every trace gets the team reward. The table itself
is `simulator.export.pettingzoo_env.TeamEnv`, so rewards are those of the PettingZoo environment.
"""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Literal

import verifiers.v1 as vf

from serving.environments.seat_tasks import draw_case, find_best_team, score_table
from simulator.export.pettingzoo_env import TeamEnv

__all__ = ["TeamTableEnv", "TeamTaskset"]

PARTS = ("value", "consensus", "unresolved", "escalation")


class TeamTasksetConfig(vf.TasksetConfig):
    """Which cases are played."""

    split: Literal["train", "validation"] = "train"
    seed: int = 0
    count: int = 100
    difficulties: list[int] = [1, 2, 3]


class CaseData(vf.TaskData):
    """One case by its coordinates."""

    split: Literal["train", "validation"]
    seed: int
    index: int
    difficulty: int


class CaseTask(vf.Task[CaseData]):
    """One case; the table scores it, so the task has no reward of its own."""

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Return whether the experts' best table earns something, and more than a table without offers."""
        data = self.data
        case = draw_case(data.split, data.seed, data.index, data.difficulty)
        reports, decision = find_best_team(case)
        silent = dict.fromkeys(reports, json.dumps({"offers": [], "needs": [], "veto": [], "note": ""}))
        best = score_table(case, reports, decision).reward
        return best > 0 and best >= score_table(case, silent, decision).reward


class TeamTaskset(vf.Taskset[CaseTask, TeamTasksetConfig]):
    """The first `count` cases, difficulties in turn."""

    def load(self) -> Iterator[CaseTask]:
        config = self.config
        for index in range(config.count):
            difficulty = config.difficulties[index % len(config.difficulties)]
            data = CaseData(
                name=f"team/{config.split}/{config.seed}/{index}/{difficulty}",
                prompt="",
                split=config.split,
                seed=config.seed,
                index=index,
                difficulty=difficulty,
            )
            yield CaseTask(data, config.task)


def _seat() -> vf.AgentConfig:
    return vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class TeamTableConfig(vf.EnvConfig):
    """The seats; each may have a model, an endpoint and limits of its own."""

    cto: vf.AgentConfig = _seat()
    coo: vf.AgentConfig = _seat()
    risk: vf.AgentConfig = _seat()
    cost: vf.AgentConfig = _seat()
    reconcile: vf.AgentConfig = _seat()


class TeamTableEnv(vf.Env[TeamTableConfig]):
    """One case: three phases, each agent reading its own observations."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play the table; an agent whose segment failed has said nothing."""
        data = task.data
        table = TeamEnv(data.split, seed=data.seed, difficulty=data.difficulty)
        observations, infos = table.reset(options={"index": data.index})
        rewards: dict[str, float] = {}
        async with AsyncExitStack() as stack:
            seat_task = vf.Task(vf.TaskData(name=data.name, prompt=None))
            players: dict[str, Any] = {}
            while table.agents:
                actions = {}
                for seat, text in observations.items():
                    if not text:
                        continue
                    if seat not in players:
                        player = getattr(agents, seat).interaction(seat_task)
                        players[seat] = await stack.enter_async_context(player)
                    segment = await players[seat].turn(text)
                    actions[seat] = "" if segment.terminated else segment.last_reply
                observations, rewards, _, _, infos = table.step(actions)
        for seat, player in players.items():
            player.trace.record_reward("team_reward", rewards[seat])
            for part in PARTS:
                player.trace.record_metric(part, float(infos[seat][part]))
