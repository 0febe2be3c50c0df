"""Train stages of prepared runs from a new process and print their digests: `STAGE SOURCE FOLDER` each."""

import json
import shutil
import sys
from pathlib import Path

from benchmarks.reliability import victims


def main() -> None:
    victims.set_up()
    found = {}
    for stage, source, folder in zip(sys.argv[1::3], sys.argv[2::3], map(Path, sys.argv[3::3]), strict=True):
        shutil.copytree(source, folder)
        if victims.play(folder, stage) != 0:
            raise SystemExit(victims.read_log(folder)[-2000:])
        found[stage] = victims.digest(folder, stage)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
