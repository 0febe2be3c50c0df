"""A data folder whose demonstrations a teacher wrote; its rows and shards are those of
`training.data.folders.datasets`.

teacher.json                     what the shards are: kept and rejected scenarios, cost, sha256
README.md                        the data card; `datasets.load_dataset(folder, "cto")` reads its header
cto/train-00000.parquet          the rows that passed every check
cto/train-00000.rejected.jsonl   the others, with the reason
cto/train-00000.journal.jsonl    every reply of the teacher; the three files before follow from it
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roles.errors import UserError
from scenarios.base import Scenario
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import EndpointSettings
from simulator.engines.openai.request_limits import BudgetSpentError
from simulator.export.atomic_files import claim_folder, explain_os_errors, remove_leftovers, write_atomic
from training.data.folders.columns import encode_shard
from training.data.folders.index import DatasetIndex
from training.data.folders.near_duplicates import RepeatFilter, compute_fingerprint
from training.data.folders.requests import Request, check_request, make_requests
from training.data.folders.rows import Case, check_families, count_roles, require_certificate
from training.data.teacher.checks import AUTHOR_PREFIX
from training.data.teacher.index import TeacherIndex, TeacherShard, write_teacher_card
from training.data.teacher.journal import SUFFIX, Heading, Journal, read_journal
from training.data.teacher.lessons import Lesson, list_lessons
from training.data.teacher.paraphrase import AUTHOR_PREFIX as PARAPHRASE_PREFIX
from training.data.teacher.paraphrase import check_can_paraphrase, make_paraphrase_lesson
from training.data.teacher.teacher import (
    Halt,
    Outcome,
    TeachingRules,
    describe_rejection,
    write_demonstrations,
)
from training.runs.progress import Progress, progress

SPARE_DRAWS = 50  # besides twice the count: a family that repeats itself more often is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingReport:
    """Result of a run of the teacher. Example: TeachingReport(shards=(...,), num_failures={}, stop=None)"""

    shards: tuple[TeacherShard, ...]  # of this request
    num_failures: dict[str, int]  # scenarios of this run without a reply, by kind of failure
    stop: str | None  # why it stopped before the end: a cost limit, which is no mistake
    problem: str | None  # what the user has to do so that it can go on


def teach_folder(
    families: Sequence[str],
    count: int,
    out: Path,
    *,
    endpoint: EndpointSettings,
    rules: TeachingRules,
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
    split: str = "train",
    unseal: bool = False,
) -> TeachingReport:
    """Let a teacher play `count` different scenarios of each family, those of `generate_folder`.

    Replies that the journals hold are not asked for again. The test split needs `unseal`.

    Raises:
        UserError: bad arguments, a folder that holds other data or that another process writes to, disk full.
        OracleDisagreementError: two methods disagree about an optimum.
    """
    checked_split = check_request(count, seed, difficulties, split, None, unseal=unseal)
    chosen = check_families(families)
    if rules.writes == "brief":
        check_can_paraphrase(chosen)
    requests = make_requests(chosen, checked_split, seed, difficulties, count=count)
    _check_folder(out, requests)
    with explain_os_errors("write data folder", out):
        out.mkdir(parents=True, exist_ok=True)
        with claim_folder(out):
            remove_leftovers(out)
            return asyncio.run(_FolderTeacher(out, endpoint, rules).teach(requests))


class _FolderTeacher:
    """Asks the teacher for the missing scenarios of a folder and writes the shards."""

    def __init__(self, out: Path, endpoint: EndpointSettings, rules: TeachingRules) -> None:
        self._out, self._endpoint, self._rules = out, endpoint, rules
        prefix = PARAPHRASE_PREFIX if rules.writes == "brief" else AUTHOR_PREFIX
        self._author = f"{prefix}{endpoint.model}"
        self._halt = Halt(rules.max_failures)
        self._num_failures: Counter[str] = Counter()
        self._num_kept = self._num_rejected = 0

    async def teach(self, requests: Sequence[Request]) -> TeachingReport:
        shards = TeacherIndex.read(self._out).by_path()
        written = []
        spent = sum(read_journal(path).cost for path in sorted(self._out.glob(f"*/*{SUFFIX}")))
        total = sum(request.count * count_roles(request.family) for request in requests)
        async with ChatClient(self._endpoint, spent=spent) as client:
            with progress("teach", total=total, unit="scenarios") as bar:
                for request, number, cases in _draw_shards(requests):
                    if self._halt.reason is not None:
                        break
                    shard = await self._teach_shard(request, number, cases, client, bar)
                    if shard is None:
                        continue
                    written.append(shard)
                    shards[shard.path] = shard
                    index = TeacherIndex(format=TeacherIndex.FORMAT).with_shards(shards)
                    index.write(self._out)
                    write_teacher_card(self._out, index)
        return self._report(written)

    async def _teach_shard(
        self,
        request: Request,
        number: int,
        cases: Sequence[Case],
        client: ChatClient,
        bar: Progress,
    ) -> TeacherShard | None:
        """The shard as far as it got; None where nothing was finished."""

        def note(outcome: Outcome) -> None:
            self._num_kept += outcome.row is not None
            self._num_rejected += outcome.rejection is not None
            if outcome.failure is not None:
                self._num_failures[outcome.failure.kind] += 1
            bar.advance(
                int(outcome.is_finished),
                kept=self._num_kept,
                rejected=self._num_rejected,
                cost=client.budget.spent,
            )

        folder = self._out / request.family
        folder.mkdir(exist_ok=True)
        remove_leftovers(folder)
        journal_path = self._out / request.path(number).replace(".parquet", SUFFIX)
        heading = Heading(
            author=self._author,
            family=request.family,
            split=request.split,
            seed=request.seed,
            difficulties=request.difficulties,
            generator=request.generator,
        )
        with Journal(journal_path, heading) as journal:
            outcomes = await write_demonstrations(
                [lesson for case in cases for lesson in self._open_lessons(case)],
                client,
                author=self._author,
                rules=self._rules,
                halt=self._halt,
                journal=journal,
                concurrency=self._endpoint.concurrency,
                report=note,
            )
        if not any(outcome.is_finished for outcome in outcomes):
            return None
        return _write_shard(self._out, request, number, outcomes, self._author, self._rules.min_reward)

    def _open_lessons(self, case: Case) -> list[Lesson]:
        if self._rules.writes == "brief":
            assert isinstance(case, Scenario)
            return [make_paraphrase_lesson(case)]
        return list_lessons(case)

    def _report(self, shards: Sequence[TeacherShard]) -> TeachingReport:
        reason = self._halt.reason
        problem = str(reason) if isinstance(reason, UserError) else None
        if problem is None and self._num_failures:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._num_failures.items()))
            problem = f"scenarios without a reply: {kinds}; run the same command again to go on"
        return TeachingReport(
            shards=tuple(shards),
            num_failures=dict(self._num_failures),
            stop=f"{reason}; raise max_cost to go on" if isinstance(reason, BudgetSpentError) else None,
            problem=problem,
        )


def _check_folder(out: Path, requests: Sequence[Request]) -> None:
    """Refuse a folder of the oracle's, and one that would lose scenarios."""
    if (out / DatasetIndex.FILE).exists():
        raise UserError(f"{out} holds demonstrations of the oracle; choose another --out")
    paths = {
        request.path(number): request.num_scenarios(number)
        for request in requests
        for number in range(request.num_shards)
    }
    asked = {(request.family, request.split) for request in requests}
    for shard in TeacherIndex.read(out).shards:
        if (shard.family, shard.split) in asked and paths.get(shard.path, 0) < shard.num_scenarios:
            raise UserError(
                f"{out} already holds more {shard.family}/{shard.split} scenarios than asked for;"
                " choose another --out or a larger --count"
            )


def _draw_shards(requests: Sequence[Request]) -> Iterator[tuple[Request, int, list[Case]]]:
    """Request, number and cases of each shard in turn."""
    for request in requests:
        different = _draw(request)
        for number in range(request.num_shards):
            yield request, number, [next(different) for _ in range(request.num_scenarios(number))]


def _draw(request: Request) -> Iterator[Case]:
    """Different cases in index order: one that repeats an earlier one, or nearly, is not worth its price.

    Raises:
        UserError: too few of them.
    """
    repeats = RepeatFilter(request.load)
    num_indices = 2 * request.count + SPARE_DRAWS
    for index in range(num_indices):
        case = request.load(index)
        if repeats.find_repeat(index, compute_fingerprint(case)):
            continue
        require_certificate(case)
        yield case
    raise UserError(
        f"{request.family}/{request.split} has fewer than {request.count} different scenarios among its first"
        f" {num_indices}; ask for fewer with --count"
    )


def _write_shard(
    out: Path, request: Request, number: int, outcomes: Sequence[Outcome], author: str, min_reward: float
) -> TeacherShard:
    """Write rows and rejections; equal outcomes give equal bytes."""
    path = request.path(number)
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    rejected = [(outcome, outcome.rejection) for outcome in outcomes if outcome.rejection is not None]
    lines = "".join(describe_rejection(outcome, rejection) + "\n" for outcome, rejection in rejected)
    content = encode_shard(rows)
    write_atomic(out / path.replace(".parquet", ".rejected.jsonl"), lines.encode())
    write_atomic(out / path, content)
    journal = read_journal(out / path.replace(".parquet", SUFFIX))
    return TeacherShard(
        path=path,
        family=request.family,
        split=request.split,
        author=author,
        seed=request.seed,
        difficulties=request.difficulties,
        min_reward=min_reward,
        num_scenarios=request.num_scenarios(number),
        num_rows=len(rows),
        rejected=dict(Counter(str(rejection.reason) for _, rejection in rejected)),
        num_unfinished=sum(not outcome.is_finished for outcome in outcomes),
        cost=journal.cost,
        prompt_tokens=journal.prompt_tokens,
        completion_tokens=journal.completion_tokens,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def summarise_teaching(report: TeachingReport) -> list[str]:
    """A line per shard, one of cost and tokens, and why it stopped early if it did."""
    lines = [_summarise_shard(shard) for shard in report.shards]
    prompt = sum(shard.prompt_tokens for shard in report.shards)
    completion = sum(shard.completion_tokens for shard in report.shards)
    cost = sum(shard.cost for shard in report.shards)
    lines.append(f"cost {cost:.4f} ({prompt} prompt and {completion} completion tokens)")
    return [*lines, report.stop] if report.stop else lines


def _summarise_shard(shard: TeacherShard) -> str:
    rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(shard.rejected.items()))
    num_plays = shard.num_scenarios * count_roles(shard.family)
    parts = [f"{shard.path}: {shard.num_rows} of {num_plays} plays kept"]
    if rejected:
        parts.append(f"rejected {rejected}")
    if shard.num_unfinished:
        parts.append(f"{shard.num_unfinished} unfinished")
    return "; ".join(parts)
