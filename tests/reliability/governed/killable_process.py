"""Plays governed episodes in a store, each request in a fork of its own that can be killed.

Reads lines "STORE STATEMENT DELAY [CHECKPOINTS]" and answers with the wait status of each: SIGKILL hits the
fork at its n-th SQLite statement (0: never) or after DELAY seconds (0: never), whichever comes first.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating, worlds
from reliability.governed.traces import TracedEpisode, trace
from simulator.governance.runner import open_services, play_governed

SCENARIOS = draw_cases(19)
CASES = [SCENARIOS[index] for index in (15, 18)]  # both planned again, and sent back


class Countdown:
    """Kills this process at the n-th call."""

    def __init__(self, calls: int) -> None:
        self.left, self.count = calls, 0

    def __call__(self, _: str) -> None:
        self.count += 1
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def play(path: Path, countdown: Countdown) -> list[TracedEpisode]:
    """Play the cases from wherever the store stands to their end."""
    async with open_services(path, key=KEY) as services:
        services.log.store.set_trace_callback(countdown)
        reviewer = expert_reviewer(error_rate=0.3, seed=30)
        played = await play_governed(
            CASES, services, make_seating(CASES), reviewer, worlds(shock_share=1.0), concurrency=2
        )
        return trace(services, played)


def serve() -> None:
    for line in sys.stdin:
        path, statement, delay = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(play(Path(path), Countdown(int(statement))))
            os._exit(0)
        if float(delay):
            time.sleep(float(delay))
            os.kill(child, signal.SIGKILL)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
