"""A data folder whose demonstrations a teacher wrote; its rows and shards are those of
`training.data.folders.datasets`.

teacher.json                     what the shards are: kept and rejected scenarios, cost, sha256
README.md                        the data card; `datasets.load_dataset(folder, "cto")` reads its header
cto/train-00000.parquet          the rows that passed every check
cto/train-00000.rejected.jsonl   the others, with the reason
cto/train-00000.journal.jsonl    every reply of the teacher, on disk before it is used

The three files before follow from the journal: a killed run goes on where it stood, and no reply is asked for
(and paid) twice.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from roles.errors import UserError
from scenarios.base import Scenario
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import BudgetSpentError, EndpointSettings
from simulator.export.atomic_files import claim_folder, explain_os_errors, remove_leftovers, write_atomic
from training.data.folders.card import write_teacher_card
from training.data.folders.datasets import (
    FamilyRequest,
    draw_different,
    draw_here,
    make_requests,
    refuse_loss,
)
from training.data.folders.index import DatasetIndex, TeacherIndex, TeacherShard
from training.data.folders.rows import SOLO_FAMILIES, Case, count_roles, encode_shard
from training.data.teacher.checks import AUTHOR_PREFIX
from training.data.teacher.lessons import AUTHOR_PREFIX as PARAPHRASE_PREFIX
from training.data.teacher.lessons import Lesson, ParaphraseLesson, check_can_paraphrase, list_lessons
from training.data.teacher.teacher import (
    Halt,
    Heading,
    Journal,
    TaughtLesson,
    TeachingRules,
    write_demonstrations,
)
from training.runs.progress import Progress, progress

SUFFIX = ".journal.jsonl"
STREAM = ("family", "split", "seed", "difficulties")  # of a request, that say which scenarios it draws


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
    requests = make_requests(families, count, seed, difficulties, split, unseal=unseal)
    if rules.writes == "brief":
        check_can_paraphrase([request.family for request in requests])
    if (out / DatasetIndex.FILE).exists():
        raise UserError(f"{out} holds demonstrations of the oracle; choose another --out")
    asked = {(request.family, request.split): request for request in requests}
    for shard in TeacherIndex.read(out).shards:
        if request := asked.get((shard.family, shard.split)):
            refuse_loss(out, shard, request)
    with explain_os_errors("write data folder", out), claim_folder(out, "data folder"):
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

    async def teach(self, requests: Sequence[FamilyRequest]) -> TeachingReport:
        shards = TeacherIndex.read(self._out).by_path()
        written = []
        spent = sum(Journal(path).cost for path in sorted(self._out.glob(f"*/*{SUFFIX}")))
        total = sum(request.count * count_roles(request.family) for request in requests)
        async with ChatClient(self._endpoint, spent=spent) as client:
            with progress("teach", total=total, unit="scenarios") as bar:
                for request in requests:
                    different = draw_different(request, draw_here, [])
                    for number in range(request.num_shards):
                        if self._halt.reason is not None:
                            break
                        drawn = islice(different, request.num_scenarios(number))
                        cases = [request.load(made.index) for made in drawn]
                        shard = await self._teach_shard(request, number, cases, client, bar)
                        if shard is None:
                            continue
                        written.append(shard)
                        shards[shard.path] = shard
                        index = TeacherIndex.of(shards)
                        index.write(self._out)
                        write_teacher_card(self._out, index)
        return self._report(written)

    async def _teach_shard(
        self, request: FamilyRequest, number: int, cases: Sequence[Case], client: ChatClient, bar: Progress
    ) -> TeacherShard | None:
        """The shard as far as it got; None where nothing was finished."""

        def note(taught: TaughtLesson) -> None:
            self._num_kept += taught.row is not None
            self._num_rejected += taught.rejection is not None
            if taught.failure is not None:
                self._num_failures[taught.failure.kind] += 1
            kept, rejected, cost = self._num_kept, self._num_rejected, client.budget.spent
            bar.advance(int(taught.is_finished), kept=kept, rejected=rejected, cost=cost)

        lessons: list[Lesson] = []
        for case in cases:
            if self._rules.writes == "brief":
                assert isinstance(case, Scenario)
                lessons.append(ParaphraseLesson(case, SOLO_FAMILIES[case.family]))
            else:
                lessons += list_lessons(case)
        remove_leftovers(self._out / request.family)
        journal = Journal(self._out / request.path(number).replace(".parquet", SUFFIX))
        stream = {name: getattr(request, name) for name in STREAM}
        journal.begin(Heading(author=self._author, generator=request.generator, **stream))
        try:
            results = await write_demonstrations(
                lessons,
                client,
                author=self._author,
                rules=self._rules,
                halt=self._halt,
                journal=journal,
                concurrency=self._endpoint.concurrency,
                report=note,
            )
        finally:
            journal.close()
        if not any(taught.is_finished for taught in results):
            return None
        return self._write_shard(request, number, results, journal)

    def _write_shard(
        self, request: FamilyRequest, number: int, results: Sequence[TaughtLesson], journal: Journal
    ) -> TeacherShard:
        """Write rows and rejections; equal results give equal bytes."""
        path = request.path(number)
        rows = [taught.row for taught in results if taught.row is not None]
        rejected = [taught for taught in results if taught.rejection is not None]
        content = encode_shard(rows)
        lines = "".join(f"{taught.describe_rejection()}\n" for taught in rejected)
        write_atomic(self._out / path.replace(".parquet", ".rejected.jsonl"), lines)
        write_atomic(self._out / path, content)
        prompt_tokens, completion_tokens = journal.count_tokens()
        return TeacherShard(
            **{name: getattr(request, name) for name in STREAM},
            path=path,
            author=self._author,
            min_reward=self._rules.min_reward,
            num_scenarios=request.num_scenarios(number),
            num_rows=len(rows),
            rejected=dict(Counter(str(one.rejection.reason) for one in rejected if one.rejection)),
            num_unfinished=sum(not taught.is_finished for taught in results),
            cost=journal.cost,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            sha256=hashlib.sha256(content).hexdigest(),
        )

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


def summarise_teaching(report: TeachingReport) -> list[str]:
    """A line per shard, one of cost and tokens, and why it stopped early if it did."""
    lines = []
    for shard in report.shards:
        num_plays = shard.num_scenarios * count_roles(shard.family)
        parts = [f"{shard.path}: {shard.num_rows} of {num_plays} plays kept"]
        if shard.rejected:
            reasons = sorted(shard.rejected.items())
            parts.append(f"rejected {', '.join(f'{reason} {count}' for reason, count in reasons)}")
        if shard.num_unfinished:
            parts.append(f"{shard.num_unfinished} unfinished")
        lines.append("; ".join(parts))
    prompt, completion, cost = (
        sum(getattr(shard, name) for shard in report.shards)
        for name in ("prompt_tokens", "completion_tokens", "cost")
    )
    lines.append(f"cost {cost:.4f} ({prompt} prompt and {completion} completion tokens)")
    return [*lines, report.stop] if report.stop else lines
