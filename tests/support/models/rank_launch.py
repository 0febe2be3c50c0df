"""Real processes for tests of ranks: programs of this environment, alone or by torchrun, and forks."""

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from accelerate.state import AcceleratorState

CHILDREN = Path(__file__).parent
ROOT = CHILDREN.parents[2]
PROGRAMS = {  # as modules: not every environment has them as commands
    "python": (),
    "torchrun": ("-m", "torch.distributed.run"),
    "accelerate": ("-m", "accelerate.commands.accelerate_cli"),
}


def launch(*arguments: object, status: int = 0) -> str:
    """Run a program of this environment (`python`, `torchrun`, `accelerate`); its standard error.

    One thread each, no GPU, the repository as working folder and importable.
    """
    return _wait(_start(arguments), status)


def launch_ranks(ranks: int, *arguments: object, status: int = 0) -> str:
    """A script with its arguments, or `-m` and a module, on so many gloo ranks; one is a plain process."""
    start = ("torchrun", "--standalone", "--nproc-per-node", ranks) if ranks > 1 else ("python",)
    return launch(*start, *arguments, status=status)


def launch_nodes(nodes: int, *arguments: object) -> list[str]:
    """The same by so many agents of torchrun with one rank each, that find each other on the loopback."""
    endpoint = f"127.0.0.1:{_free_port()}"
    start = ("torchrun", "--nnodes", nodes, "--nproc-per-node", 1, "--rdzv-backend", "c10d")
    agents = [_start((*start, "--rdzv-endpoint", endpoint, *arguments)) for _ in range(nodes)]
    return [_wait(agent, 0) for agent in agents]


def fork_ranks(ranks: int, work: Callable[[], int], **environment: str) -> list[int]:
    """Exit statuses of `work` in so many forks with torchrun's variables; of a kill minus its signal."""
    several = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    forks = []
    for rank in range(ranks):
        if (fork := os.fork()) == 0:
            status = 1
            try:
                if ranks > 1:
                    environment |= {name: str(value) for name, value in several.items()}
                    environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                os.environ |= environment
                AcceleratorState._reset_state(reset_partial_state=True)  # what this process has trained as
                status = work()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        forks.append(fork)
    return [os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) for fork in forks]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _start(arguments: Sequence[object]) -> subprocess.Popen[str]:
    program, *rest = map(str, arguments)
    return subprocess.Popen(
        [sys.executable, *PROGRAMS[program], *rest],
        cwd=ROOT,
        env=os.environ
        | {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            # DETAIL: every collective is compared over the ranks before it runs
            "TORCH_DISTRIBUTED_DEBUG": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(process: subprocess.Popen[str], status: int) -> str:
    try:
        _, errors = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == status, errors[:20000] + errors[-4000:]
    return errors
