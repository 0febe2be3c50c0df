"""A rollout host as an actor of a Ray cluster (extra `ray`), on any of its machines.

Ray does not restart an actor here: the pool starts another one, and loads its weights, as with processes.
"""

import asyncio
from contextlib import ExitStack
from typing import Any

import torch

from roles.errors import UserError
from training.rl.hosts.host import RolloutHost
from training.rl.hosts.pool import HostLostError
from training.rl.hosts.process_host import OpenHost


def join_cluster(address: str) -> None:
    """Connect this process to the cluster at `address`; `local` starts one here; once is enough.

    Raises:
        UserError: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError:
        raise UserError("rollouts.ray needs Ray: pip install 'emads[ray]'") from None
    if ray.is_initialized():
        return
    # Ray's workers would give way to every other process of this machine (niceness 15)
    own: dict[str, Any] = {"_system_config": {"worker_niceness": 0}, "include_dashboard": False}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            **(own if address == "local" else {}),
        )
    except (ConnectionError, ValueError) as error:
        raise UserError(f"no Ray cluster at rollouts.ray {address!r}: {error}") from None


class HostActor:
    """Lives in the actor's process; answers while it plays, so that it can be asked whether it lives."""

    def __init__(self, open_host: OpenHost, num_threads: int) -> None:
        self._open_host, self._num_threads = open_host, num_threads
        self._opened = ExitStack()
        self._host: RolloutHost | None = None

    async def start(self) -> None:
        """Open the host."""
        torch.set_num_threads(self._num_threads)
        self._host = await asyncio.to_thread(self._opened.enter_context, self._open_host())

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host."""
        return await asyncio.to_thread(getattr(self._host, method), *arguments)


class RayHost:
    """A RolloutHost in a Ray actor."""

    def __init__(self, open_host: OpenHost, *, num_threads: int = 1, num_gpus: float = 0.0) -> None:
        """`open_host` is pickled: what it names must be importable on every machine of the cluster."""
        self._open_host, self._num_threads, self._num_gpus = open_host, num_threads, num_gpus
        self._actor: Any = None

    async def start(self) -> None:
        import ray

        options = {"num_cpus": self._num_threads, "num_gpus": self._num_gpus, "max_restarts": 0}
        actor_class: Any = ray.remote(HostActor)
        self._actor = actor_class.options(**options).remote(self._open_host, self._num_threads)
        await self._wait(self._actor.start.remote())

    async def call(self, method: str, *arguments: Any) -> Any:
        return await self._wait(self._actor.call.remote(method, *arguments))

    def close(self) -> None:
        import ray

        if self._actor is not None:
            ray.kill(self._actor)

    async def _wait(self, reference: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await reference
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:  # killed, its machine gone, or by Ray itself where memory is short
            raise HostLostError(f"a Ray host ended: {error}") from None
