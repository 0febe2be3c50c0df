"""A pool of rollout worker processes, each speaking for every role; a planned fault hits one of them."""

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Sequence
from typing import Any

from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.team import TeamScenario, generate
from simulator.agents.scripted_policies import baseline_team, oracle_team
from simulator.engines.scripted import SeededPolicy

TIMEOUT_S = 5.0


def serve(pipe: Any, keys: Sequence[tuple[int, int]]) -> None:
    """Experts half of the time, well-formed nonsense otherwise; the same words for the same seed."""
    scenarios = [generate("train", 0, index, difficulty) for index, difficulty in keys]
    expert, nonsense = oracle_team(scenarios), baseline_team(scenarios, "random")
    while True:
        role, transcript, seed = pipe.recv()
        rng = random.Random(seed)
        pipe.send((expert if rng.random() < 0.5 else nonsense)[role](transcript, rng))


class RolloutWorkers:
    """Worker processes; `fault` hits the one that gets call number `at`. Lost ones are replaced."""

    def __init__(self, scenarios: Sequence[TeamScenario], *, count: int = 2) -> None:
        self._keys = [(scenario.index, scenario.difficulty) for scenario in scenarios]
        self._context = multiprocessing.get_context("spawn")
        self._workers = [self._start() for _ in range(count)]
        self._fault, self._at, self._calls = "", 0, 0
        self.losses = 0

    def _start(self) -> tuple[Any, Any]:
        here, there = self._context.Pipe()
        process = self._context.Process(target=serve, args=(there, self._keys), daemon=True)
        process.start()
        there.close()
        return process, here

    def plan_fault(self, fault: str, at: int) -> None:
        """Plan a fault: kill, hang or slow, at the at-th call from now."""
        self._fault, self._at, self._calls = fault, at, 0

    def speakers(self) -> dict[str, SeededPolicy]:
        """Return a scripted engine's words, each from the workers."""
        return {role: self._speaker(role) for role in ROLES}

    def _speaker(self, role: str) -> SeededPolicy:
        def speak(transcript: str, rng: random.Random) -> str:
            return self._ask(role, transcript, rng.random())

        return speak

    def _ask(self, role: str, transcript: str, seed: float) -> str:
        self._calls += 1
        place = int(seed * 1e6) % len(self._workers)
        process, pipe = self._workers[place]
        if self._calls == self._at:
            self._apply(process)
        try:
            pipe.send((role, transcript, seed))
            if pipe.poll(60.0 if self._calls != self._at or self._fault == "slow" else TIMEOUT_S):
                text: str = pipe.recv()
                return text
        except (EOFError, OSError):
            pass
        process.kill()
        process.join()
        pipe.close()
        self._workers[place] = self._start()
        self.losses += 1
        raise InfrastructureError(f"rollout worker {process.pid} was lost or hung")

    def _apply(self, process: Any) -> None:
        if self._fault == "kill":
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        elif self._fault == "hang":
            os.kill(process.pid, signal.SIGSTOP)
        elif self._fault == "slow":
            os.kill(process.pid, signal.SIGSTOP)
            threading.Timer(0.5, os.kill, (process.pid, signal.SIGCONT)).start()

    def close(self) -> None:
        for process, pipe in self._workers:
            process.kill()
            process.join()
            pipe.close()
