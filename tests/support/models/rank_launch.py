"""Real processes for tests of ranks: a program run to its end, alone or on several ranks."""

import gc
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import pytest

CHILDREN = Path(__file__).parent
ROOT = CHILDREN.parents[2]
PROGRAMS = {  # not every environment has them as commands
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
}
LIMIT_S = 900.0
STAGES = (
    "training.stages.on_ranks",
    "reliability.joint.rank_stage",
)

# Forks of a process that has imported the stages and done nothing else: fresh, without seconds of imports.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(list(STAGES))


def fork_hosts(patch: pytest.MonkeyPatch) -> None:
    """Let rollout hosts be such processes, too."""
    started = SimpleNamespace(get_context=lambda _: FORKED)
    patch.setattr("training.rl.remote_hosts.multiprocessing", started)


def launch(*arguments: object) -> str:
    """Run a program of this environment (`accelerate`) to its end; its standard error.

    One thread each, no GPU, the repository as working folder and importable.
    """
    return _wait(_start(arguments))


def launch_ranks(ranks: int, *arguments: object, status: int = 0, like: Mapping[str, str] = {}) -> str:
    """A script with its arguments, or `-m` and a module, on so many gloo ranks; one is a plain process.

    As torchrun has it: where a rank fails the others are killed, and the status is 1. `like`: more variables.
    """
    words = [str(argument) for argument in arguments]
    with tempfile.NamedTemporaryFile(mode="r") as errors:
        port = _free_port()
        places = [_place(rank, ranks, port) | dict(like) for rank in range(ranks)]
        started = [FORKED.Process(target=_run, args=(words, place, errors.name)) for place in places]
        for process in started:
            process.start()
        try:
            _end_together(started)
        finally:
            for process in started:
                process.kill()
                process.join()
        said = errors.read()
    codes = [process.exitcode for process in started]
    ended = codes[0] if ranks == 1 else int(any(codes))
    assert ended == status, f"{codes}\n{said[:20000]}{said[-4000:]}"
    return said


def launch_nodes(nodes: int, *arguments: object) -> list[str]:
    """The same by so many agents of torchrun with one rank each, that find each other on the loopback."""
    start = ("torchrun", "--nnodes", nodes, "--nproc-per-node", 1, "--rdzv-backend", "c10d")
    endpoint = f"127.0.0.1:{_free_port()}"
    agents = [_start((*start, "--rdzv-endpoint", endpoint, *arguments)) for _ in range(nodes)]
    return [_wait(agent) for agent in agents]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        # DETAIL: every collective is compared over the ranks before it runs
        "TORCH_DISTRIBUTED_DEBUG": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/support"))),
    }


def _place(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets; none for a process alone."""
    if ranks == 1:
        return _environment()
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return {
        **_environment(),
        **size,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _run(words: Sequence[str], environment: Mapping[str, str], errors: str) -> None:
    """Be `python WORDS` in this new process."""
    from torch.distributed import set_debug_level_from_env  # type: ignore[attr-defined]

    gc.freeze()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    os.chdir(ROOT)
    os.environ.update(environment)
    fork_hosts(pytest.MonkeyPatch())
    set_debug_level_from_env()
    if words[0] == "-m":
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")


def _end_together(started: Sequence[multiprocessing.process.BaseProcess]) -> None:
    """Wait until all have ended, or one has failed."""
    running = {process.sentinel: process for process in started}
    while running:
        ended = [
            running.pop(sentinel) for sentinel in wait(list(running), LIMIT_S) if isinstance(sentinel, int)
        ]
        for process in ended:
            process.join()
        if not ended or any(process.exitcode for process in ended):
            return


def _start(arguments: Sequence[object]) -> subprocess.Popen[str]:
    program, *rest = map(str, arguments)
    return subprocess.Popen(
        [sys.executable, "-m", PROGRAMS[program], *rest],
        cwd=ROOT,
        env=os.environ | _environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(process: subprocess.Popen[str]) -> str:
    try:
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors[:20000] + errors[-4000:]
    return errors
