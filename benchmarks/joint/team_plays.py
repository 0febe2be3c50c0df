"""Shows why teams earn what they do, from stored plays: what was read, what reports get wrong, what is left.

    python -m benchmarks.joint.team_plays RUN RUN/scores/outcomes/grpo-team.sampled.jsonl OTHER.jsonl

Per file of sealed team outcomes: R, V, the share of decisions that cannot be read, the share of reports with
offers and no false claim, the first fault of each report as the verifier names it, and V of the best plan
that the reports allow. Then every later file's change from the first one, paired on the cases of both.
"""

import argparse
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evaluation.scoring.baselines import read_table
from evaluation.scoring.outcomes import OutcomeFile, TeamOutcome
from evaluation.stats.intervals import paired_interval
from roles.base import AnswerError
from roles.errors import UserError
from scenarios.team import TeamScenario, judge_decision
from scenarios.team.experts import best_decision
from scenarios.team.offers import check_report
from scenarios.team.reading import read_report
from training.runs.run_folder import Run
from training.stages.from_config import test_cases

MEASURES: Mapping[str, Callable[[TeamOutcome], float]] = {
    "R": lambda play: play.reward,
    "V": lambda play: play.value,
    "unreadable decisions": lambda play: float(play.unresolved == 1),
    "honest reports": lambda play: statistics.fmean(is_honest(play, seat) for seat in play.reports),
}


def main(arguments: Sequence[str]) -> int:
    """Print some lines per file, and the paired changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="whose sealed cases were played")
    parser.add_argument("plays", type=Path, nargs="+")
    parser.add_argument("--without", type=Path, metavar="FILE", help="leave out the cases of these plays")
    options = parser.parse_args(arguments)
    try:
        cases = {case.key: case for case in test_cases(Run.open(options.run).config)}
        seen = {play.key for play in read_plays(options.without)} if options.without else set()
        files = [[play for play in read_plays(path) if play.key not in seen] for path in options.plays]
        for path, plays in zip(options.plays, files, strict=True):
            if not plays:
                raise UserError(f"{path} has no play that --without leaves")
            describe(path, plays, cases)
        for path, plays in zip(options.plays[1:], files[1:], strict=True):
            compare(path, plays, files[0])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    return 0


def read_plays(path: Path) -> list[TeamOutcome]:
    return OutcomeFile(path, TeamOutcome).read()


def describe(path: Path, plays: Sequence[TeamOutcome], cases: Mapping[str, TeamScenario]) -> None:
    """Print means, first faults and the best plans of a file's plays."""
    means = [f"{name} {statistics.fmean(map(measure, plays)):.3f}" for name, measure in MEASURES.items()]
    best = statistics.fmean(value_of_best(cases[play.key], play) for play in plays)
    print(f"{path}: {len(plays)} cases, {', '.join(means)}; V of the best plan by the reports {best:.3f}")
    faults = Counter(
        find_fault(cases[play.key], seat, text) for play in plays for seat, text in play.reports.items()
    )
    for fault, count in faults.most_common():
        print(f"  {count} of {faults.total()} reports: {fault}")


def compare(path: Path, plays: Sequence[TeamOutcome], first: Sequence[TeamOutcome]) -> None:
    """Print how the plays differ from the first file's on the same cases."""
    before = {play.key: play for play in first}
    both = [(play, before[play.key]) for play in plays if play.key in before]
    for name, measure in MEASURES.items():
        after, there = [measure(play) for play, _ in both], [measure(play) for _, play in both]
        change = paired_interval(after, there)
        print(
            f"{path}, {name}: {statistics.fmean(after):.3f} after {statistics.fmean(there):.3f}"
            f" on {len(both)} cases, {change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
        )


def is_honest(play: TeamOutcome, seat: str) -> bool:
    """Return whether the seat's report was read, makes an offer that stands, and had no claim struck out."""
    return play.offers.get(seat, 0) > 0 and play.false_claims.get(seat) == 0


def find_fault(case: TeamScenario, seat: str, text: str) -> str:
    """Return why the report earns nothing, without its names and numbers; "none" where all claims hold."""
    try:
        report, _ = read_report(text)
    except AnswerError:
        return "cannot be read"
    claims = check_report(case, seat, report).false_claims
    if not claims:
        return "none"
    _, _, reason = claims[0].partition(": ")
    return re.sub(r"\d+", "#", reason)


def value_of_best(case: TeamScenario, play: TeamOutcome) -> float:
    """Return V of the plan of the largest worth by the reports."""
    table = read_table(case, play.reports)
    return judge_decision(case, table, best_decision(case.public, table, "exact")).value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
