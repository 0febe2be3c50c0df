"""Two ranks of which the second one hangs or dies while the first one waits for it in a step."""

import os
import sys
import time

from training.learner.fsdp import join_ranks
from training.learner.ranks import explain_lost_ranks
from training.runs.run_errors import WorkerLostError

ranks = join_ranks(timeout_s=10)
if ranks.rank == 1:
    if sys.argv[1] == "dies":
        os._exit(9)
    time.sleep(120)
start_s = time.monotonic()
try:
    with explain_lost_ranks(ranks):
        ranks.sum([1.0])
except WorkerLostError as error:
    print(f"after {time.monotonic() - start_s:.0f} s: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(error.status)
