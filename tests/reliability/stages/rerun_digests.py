"""Trains stages of prepared runs in a new process and prints their digests: `STAGE SOURCE FOLDER` each."""

import json
import shutil
import sys
from pathlib import Path

from reliability.stages import tiny_runs


def main() -> None:
    tiny_runs.set_up()
    found = {}
    for stage, source, folder in zip(sys.argv[1::3], sys.argv[2::3], map(Path, sys.argv[3::3]), strict=True):
        shutil.copytree(source, folder)
        if tiny_runs.train_in_fork(folder, stage) != 0:
            raise SystemExit(tiny_runs.read_log(folder)[-2000:])
        found[stage] = tiny_runs.digest(folder, stage)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
