"""Run the reliability checks and write their rows of a Markdown table.

    PYTHONPATH=tests python -m reliability                        # full counts, about 20 minutes on two cores
    PYTHONPATH=tests python -m reliability --tier pr --only R1 --only R5

Every trial is a line of WORK/results.jsonl; a check that was interrupted goes on after its last line.
"""

import argparse
import json
import sys
from pathlib import Path

from reliability.checks import CHECKS, run_check
from reliability.results_table import render_row, update_table
from reliability.stages.prepared_runs import PreparedRuns


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 where any trial failed."""
    parser = argparse.ArgumentParser(description="Break runs on purpose and count what survived.")
    parser.add_argument("--tier", choices=("pr", "full"), default="full")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="repeatable; default: all")
    parser.add_argument("--work", type=Path, default=Path("runs/reliability"), help="scratch folder")
    parser.add_argument("--table", type=Path, help="Markdown file whose rows are rewritten (full only)")
    options = parser.parse_args(arguments)
    runs = PreparedRuns(options.work / options.tier, options.tier)
    failed = 0
    for name in options.only or list(CHECKS):
        check = CHECKS[name]
        results = run_check(name, check, runs)
        bad = [result for result in results if not result["ok"]]
        failed += len(bad)
        row = render_row(name, check.probe, check.pr, check.full, results)
        print(row, flush=True)
        for result in bad[:5]:
            print(f"  FAILED {json.dumps(result)}", flush=True)
        if options.table is not None and options.tier == "full":
            update_table(options.table, name, row)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
