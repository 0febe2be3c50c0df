"""Run the batteries and write their rows of docs/reliability.md.

    python -m benchmarks.reliability                    # full counts, about 20 minutes on two cores
    python -m benchmarks.reliability --tier pr --only R1 --only R5

Every trial is a line of WORK/results.jsonl; a battery that was interrupted goes on after its last line.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.reliability.batteries import BATTERIES, Bench
from benchmarks.reliability.table import render_row, update_table

ROOT = Path(__file__).parent.parent.parent
TABLE = ROOT / "docs" / "reliability.md"


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 where any trial failed."""
    parser = argparse.ArgumentParser(description="Break runs on purpose and count what survived.")
    parser.add_argument("--tier", choices=("pr", "full"), default="full")
    parser.add_argument("--only", action="append", choices=list(BATTERIES), help="repeatable; default: all")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "reliability", help="scratch folder")
    parser.add_argument("--table", type=Path, default=TABLE, help="file whose rows are rewritten (full only)")
    options = parser.parse_args(arguments)
    bench = Bench(options.work / options.tier, options.tier)
    failed = 0
    for name in options.only or list(BATTERIES):
        battery = BATTERIES[name]
        results = bench.run(name, battery)
        bad = [result for result in results if not result["ok"]]
        failed += len(bad)
        row = render_row(name, battery.probe, battery.pr, battery.full, results)
        print(row, flush=True)
        for result in bad[:5]:
            print(f"  FAILED {json.dumps(result)}", flush=True)
        if options.tier == "full":
            update_table(options.table, name, row)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
