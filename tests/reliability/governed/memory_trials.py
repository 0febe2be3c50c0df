"""L1: memory and descriptors over thousands of episodes of either protocol, each in a process of its own."""

import subprocess
import sys

from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials


def memory_growth(runs: PreparedRuns, count: int) -> Trials:
    """Yield one trial per protocol, in a process of its own."""
    for protocol in ("full", "assess"):

        def call(protocol: str = protocol) -> str:
            program = "reliability.governed.memory_growth"
            command = [sys.executable, "-m", program, f"--episodes={count}", f"--protocol={protocol}"]
            done = subprocess.run(command, capture_output=True, text=True)
            lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            return "" if done.returncode == 0 else lines[-1][:300]

        yield Trial(f"{protocol}-{count}", "flat", call)
