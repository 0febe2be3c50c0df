"""Rollout hosts play a step's cases; a pool deals the work out and replaces hosts that are lost or hang.

The same host plays in the learner's process, in a process of its own and in a Ray actor (remote_hosts.py).
What is sampled depends on the weights, the cases, their place in the step and the stream's name, never on who
plays it: a job that a host took with it is played again, whole, by the next one, and nothing is lost or
learnt twice. How far play runs ahead of learning is decided in `overlap.py`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import safetensors.torch
from torch import Tensor

from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Engine, PolicyEngine
from simulator.engines.loop_thread import LoopThread
from training.config.run_config import RolloutsConfig
from training.models.adapters import role_weights
from training.runs.resume import load_tensors
from training.runs.run_errors import WorkerLostError


class Player(Protocol):
    """Plays scenarios as groups of episodes that are compared with each other."""

    def play(self, engine: Engine, scenarios: Sequence[Any], stream: str, first_place: int = 0) -> list[Any]:
        """The groups of these scenarios, which begin at `first_place` of the step's."""
        ...

    def play_validation(
        self, engine: Engine, scenarios: Sequence[Any], stream: str, first_place: int = 0
    ) -> list[Any]:
        """One episode of every scenario, sampled as in a step; raises InfrastructureError if one is lost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Cases that one host plays side by side: the unit that is played again when a host is lost.

    Example: Job(cases=(first, second), stream="marl/3", first_place=12)
    """

    cases: tuple[Any, ...]
    stream: str  # names what is sampled; jobs of one stream have different places
    first_place: int = 0  # of the cases in the whole list
    is_validation: bool = False  # one episode of every case


def cut_jobs(
    cases: Sequence[Any],
    stream: str,
    *,
    block_size: int,
    first_place: int = 0,
    is_validation: bool = False,
) -> list[Job]:
    """Jobs of `block_size` neighbouring cases each, the last of what is left; 0 makes one of all."""
    size = block_size or max(1, len(cases))
    return [
        Job(
            cases=tuple(cases[start : start + size]),
            stream=stream,
            first_place=first_place + start,
            is_validation=is_validation,
        )
        for start in range(0, len(cases), size)
    ]


class RolloutHost:
    """Plays jobs with the weights that it was given last."""

    def __init__(
        self, models: Mapping[str, Any], player: Player, make_engine: Callable[[], PolicyEngine]
    ) -> None:
        """`make_engine` gives a new engine for each job, or always the same one."""
        self.models, self._player, self._make_engine = models, player, make_engine
        self._versions: dict[str, int] = {}

    def load(self, role: str, version: int, weights: bytes) -> None:
        """Take a role's weights (safetensors, whole); one role may stand for all that share them.

        Raises:
            DamagedCheckpointError: other names or shapes than the host's own model has.
        """
        load_tensors(safetensors.torch.load(weights), role_weights(self.models[role], role))
        self._versions[role] = version

    def play(self, job: Job, version: int) -> list[Any]:
        """The complete groups of the job's cases, played with weights of this version.

        Raises:
            RuntimeError: the weights that were loaded are of another version.
            InfrastructureError: an episode of a validation was lost.
        """
        if not self._versions or set(self._versions.values()) != {version}:
            raise RuntimeError(f"version {version} is to be played, but loaded are {self._versions}")
        return self.play_with(self.models, job, version)

    def play_with(self, models: Mapping[str, Any], job: Job, version: int) -> list[Any]:
        """`play` with models of this process, which are of that version."""
        engine = serve_roles(self._make_engine(), models, version)
        if job.is_validation:
            return self._player.play_validation(engine, job.cases, job.stream, job.first_place)
        return self._player.play(engine, job.cases, job.stream, job.first_place)


def serve_roles(engine: PolicyEngine, models: Mapping[str, Any], version: int) -> PolicyEngine:
    """The engine, serving every role by its model as that version."""
    for role, model in models.items():
        options = {} if (adapter := adapter_of(model, role)) is None else {"adapter": adapter}
        engine.set_policy(role, model, version=f"{role}@{version}", **options)
    return engine


def encode_weights(weights: Mapping[str, Mapping[str, Tensor]]) -> dict[str, bytes]:
    """Each role's weights as safetensors, as `RolloutHost.load` takes them."""
    return {
        role: safetensors.torch.save({name: one.detach().cpu().contiguous() for name, one in named.items()})
        for role, named in weights.items()
    }


START_S = 900.0  # that a host may take to start: vLLM takes minutes
MOST_LOSSES = 5  # of hosts with the same job, one after the other


def longest_play_s(config: RolloutsConfig) -> float:
    """Seconds that other ranks may have to wait for a play: rank 0's hosts may be lost several times."""
    return config.timeout_s * MOST_LOSSES + START_S if config.hosts else config.timeout_s


class HostLostError(Exception):
    """A host's process ended while it had work."""


class Host(Protocol):
    """A RolloutHost in another process. `call` names its method."""

    async def start(self) -> None:
        """Start the process; return when it can be called. Raises as `call`."""
        ...

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call `load` or `play` there.

        Raises:
            HostLostError: the process is gone.
            Exception: what the method raised.
        """
        ...

    def close(self) -> None:
        """End the process, also one that hangs; calls under way fail."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A job in the queue with the weights that it is to be played with."""

    job: Job
    version: int
    weights: Mapping[str, bytes]  # by role
    result: asyncio.Future[list[Any]]


class HostSchedule:
    """The queue of jobs and, for every host, the coroutine that serves it. One event loop."""

    def __init__(self, make_host: Callable[[int], Host], num_hosts: int, *, timeout_s: float) -> None:
        """`timeout_s`: a load or a job that takes longer counts as hung; a start has START_S."""
        self._make_host, self._timeout_s = make_host, timeout_s
        self._queue: asyncio.Queue[_Order] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._serve(number)) for number in range(num_hosts)]
        self.num_lost = 0  # hosts that were replaced

    async def play(self, weights: Mapping[str, bytes], version: int, jobs: Sequence[Job]) -> list[Any]:
        """Return what hosts play of these jobs, in the order of the jobs.

        Raises:
            WorkerLostError: several hosts were lost with the same job.
            Exception: what a host raised.
        """
        results: list[asyncio.Future[list[Any]]] = []
        for job in jobs:
            results.append(asyncio.get_running_loop().create_future())
            self._queue.put_nowait(_Order(job=job, version=version, weights=weights, result=results[-1]))
        played: list[Any] = await asyncio.gather(*results)
        return played

    async def close(self) -> None:
        """End all hosts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, number: int) -> None:
        """Let host `number` play one job after the other; start another one in place of a lost one."""
        host: Host | None = None
        loaded: int | None = None
        try:
            try:
                host = await self._start(number)
            except (HostLostError, TimeoutError):
                self.num_lost += 1
            except Exception:  # it comes again, and is raised, when there is work
                host = None
            while True:
                order, losses = await self._queue.get(), 0
                while not order.result.done():
                    try:
                        if host is None:
                            loaded, host = None, await self._start(number)
                        if loaded != order.version:
                            loaded = None
                            for role, weights in order.weights.items():
                                await self._call(host, "load", role, order.version, weights)
                            loaded = order.version
                        groups = await self._call(host, "play", order.job, order.version)
                        _settle(order.result, groups)
                    except (HostLostError, TimeoutError) as error:
                        host, losses = _close(host), losses + 1
                        self.num_lost += 1
                        if losses == MOST_LOSSES:
                            _settle(order.result, _explain(losses, error, self._timeout_s))
                    except Exception as error:  # the caller's to handle: it waits for this job
                        host = _close(host)
                        _settle(order.result, error)
        finally:
            _close(host)

    async def _start(self, number: int) -> Host:
        host = self._make_host(number)
        try:
            async with asyncio.timeout(START_S):
                await host.start()
        except BaseException:
            host.close()
            raise
        return host

    async def _call(self, host: Host, method: str, *arguments: Any) -> Any:
        async with asyncio.timeout(self._timeout_s):
            return await host.call(method, *arguments)


def _close(host: Host | None) -> Host | None:
    """Close the host; returns what takes its place."""
    if host is not None:
        host.close()
    return None


def _settle(result: "asyncio.Future[list[Any]]", found: list[Any] | Exception) -> None:
    """Answer whoever waits; nobody does where another job of the same play has failed."""
    if result.done():
        return
    if isinstance(found, Exception):
        result.set_exception(found)
    else:
        result.set_result(found)


def _explain(losses: int, error: Exception, timeout_s: float) -> WorkerLostError:
    why = f"gave no answer for {timeout_s:g} s" if isinstance(error, TimeoutError) else "ended"
    return WorkerLostError(
        f"{losses} rollout hosts in a row were lost with the same work, the last one {why}; look at the"
        " machine's memory, raise rollouts.timeout_s or lower rollouts.hosts in the run's config.yaml, and"
        " --resume"
    )


class HostPool:
    """Rollout hosts for ordinary code; threads may call `play` at the same time."""

    def __init__(self, make_host: Callable[[int], Host], num_hosts: int, *, timeout_s: float) -> None:
        """Start the hosts and do not wait for them. Without hosts every play is empty."""
        self._loop = LoopThread("rollout hosts")
        self._schedule = self._loop.call(self._open(make_host, num_hosts, timeout_s))
        self._num_hosts = num_hosts
        self._encoded: tuple[int, dict[str, bytes]] | None = None

    @staticmethod
    async def _open(make_host: Callable[[int], Host], num_hosts: int, timeout_s: float) -> HostSchedule:
        return HostSchedule(make_host, num_hosts, timeout_s=timeout_s)

    def play(
        self, weights: Mapping[str, Mapping[str, Tensor]], version: int, jobs: Sequence[Job]
    ) -> list[Any]:
        """The complete groups of all jobs, in their order, played with these weights.

        Raises:
            as `HostSchedule.play`.
        """
        if not self._num_hosts:
            return []
        if self._encoded is None or self._encoded[0] != version:
            self._encoded = version, encode_weights(weights)
        played = self._loop.call(self._schedule.play(self._encoded[1], version, jobs))
        return [group for groups in played for group in groups]

    @property
    def num_lost(self) -> int:
        """Hosts that were lost or hung, and replaced."""
        return self._schedule.num_lost

    def close(self) -> None:
        """End all hosts."""
        self._loop.call(self._schedule.close())
        self._loop.close()
