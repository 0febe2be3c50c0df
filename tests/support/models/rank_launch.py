"""Real processes for tests of ranks: a program of this environment run to its end, alone or by torchrun."""

import os
import subprocess
import sys
from pathlib import Path

CHILDREN = Path(__file__).parent
ROOT = CHILDREN.parents[2]


def launch(*arguments: object, status: int = 0) -> str:
    """Run a program of this environment (`python`, `torchrun`, `accelerate`); its standard error.

    One thread each, no GPU, the repository as working folder and importable.
    """
    program, *rest = map(str, arguments)
    done = subprocess.run(
        [Path(sys.executable).parent / program, *rest],
        cwd=ROOT,
        env=os.environ
        | {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            # DETAIL: every collective is compared over the ranks before it runs
            "TORCH_DISTRIBUTED_DEBUG": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == status, done.stderr[:20000] + done.stderr[-4000:]
    return done.stderr


def launch_ranks(ranks: int, *arguments: object, status: int = 0) -> str:
    """A script with its arguments, or `-m` and a module, on so many gloo ranks; one is a plain process."""
    start = ("torchrun", "--standalone", "--nproc-per-node", ranks) if ranks > 1 else ("python",)
    return launch(*start, *arguments, status=status)
