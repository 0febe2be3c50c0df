"""G2: whatever two workers, a reviewer and somebody with the files do, in any order, the gate's rules hold.

The decision log is replayed by an oracle of its own after every step: commits only for live approvals of what
was shown, one for an attempt, deliveries only of what was committed, after the close nothing but refusals.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from governed_tables import CALM, HandClock, counted_nonces, find_gate_case, stand_at_gate
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.types import Command
from trial_counts import num_trials

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from simulator.governance.durable_agents import DurableAgents
from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    ReviewResponse,
    issue_approval,
)
from simulator.governance.gate.reviewers import AbsentReviewer
from simulator.governance.runner import (
    make_course,
    make_full_context,
    open_services,
    play_governed,
    thread_config,
)
from simulator.governance.store.decision_log import Entry, verify_chain

SEQUENCES_PER_PART = 500
STEPS = 20
RESPONSES = (
    ReviewResponse(decision="approve"),
    ReviewResponse(decision="reject", feedback="no"),
    ReviewResponse(decision="edit", option="none"),
    ReviewResponse(decision="edit", option="C"),
)
NODES = ("commit", "reconcile", "propose", "execute_cto", "outcome", "close")
workers = st.integers(0, 1)
ages = st.sampled_from((0, 0, 0, 1, 2))  # of what was shown: 0 is the latest


def prepare_store(folder: Path) -> tuple[Path, int]:
    """A store whose case waits at its first proposal."""
    index = find_gate_case(0)

    async def run() -> Path:
        async with stand_at_gate(folder, index=index) as stand:
            path = stand.path
        return path

    return asyncio.run(run()), index


def check_log(entries: list[Entry], signed: dict[str, ApprovalRecord]) -> None:
    """Replay the log: every commit and delivery must have been permitted when it was made."""
    shown, ruled, attempts, nonces = ("", ""), set(), set(), set()
    committed: set[str] = set()
    delivered: set[tuple[str, str]] = set()
    is_closed = False
    for entry in entries:
        body = entry.body
        assert not is_closed or entry.kind == "refused", f"{entry.kind} after the close"
        if entry.kind == "requested":
            shown = (body["interrupt_id"], body["digest"])
        elif entry.kind in ("edited", "rejected", "refused"):
            ruled.add(body.get("interrupt_id"))
        elif entry.kind == "committed":
            record = signed[body["nonce"]]
            assert record.decision == "approve"
            assert (
                (record.interrupt_id, record.proposal_digest)
                == shown
                == (body["interrupt_id"], body["digest"])
            )
            assert record.interrupt_id not in ruled
            assert record.issued_at_s <= entry.at_s + 1
            assert entry.at_s < record.expires_at_s
            assert body["attempt"] not in attempts
            assert record.nonce not in nonces
            attempts.add(body["attempt"])
            nonces.add(record.nonce)
            committed.add(body["digest"])
        elif entry.kind == "executed":
            assert body["digest"] in committed
            assert (body["digest"], body["role"]) not in delivered
            delivered.add((body["digest"], body["role"]))
        is_closed = is_closed or entry.kind == "closed"


class Worker:
    """A process on the store: its services, and the handles of one thread."""

    def __init__(self, run: Callable[[Any], Any], path: Path, index: int, clock: HandClock) -> None:
        self._run, self._stack = run, AsyncExitStack()
        scenarios = draw_cases(index + 1)
        self.case, self.seating = scenarios[index], make_seating(scenarios)
        opened = open_services(path, key=KEY, clock=clock, nonce=counted_nonces())
        self.services = run(self._stack.enter_async_context(opened))
        self.thread = f"{self.seating.stream}/{self.case.key}"
        self.config = thread_config(self.thread)
        course = make_course(self.thread, self.seating, CALM(self.case), self.services)
        agents = DurableAgents(self.seating, self.case, course.game, self.thread, self.services.ledger)
        self.context = make_full_context(
            self.thread, 0, self.services, agents, self.case, course, CALM(self.case)
        )
        self.graph = self.services.graph(tuple(self.case.seats))

    def state(self) -> Any:
        return self._run(self.graph.aget_state(self.config))

    def history(self, limit: int) -> list[Any]:
        async def read() -> list[Any]:
            return [one async for one in self.graph.aget_state_history(self.config, limit=limit)]

        return list(self._run(read()))

    def go(self, step: Any, config: Any = None, **options: Any) -> None:
        with suppress(NotApprovedError):
            self._run(
                self.graph.ainvoke(
                    step, config or self.config, context=self.context, durability="sync", **options
                )
            )

    def end(self, *, is_orderly: bool) -> None:
        if not is_orderly:  # what a kill leaves undone
            self.services.log.mark = None
        self._run(self._stack.aclose())


class GateMachine(RuleBasedStateMachine):
    """Draws sequences of what can happen to one case."""

    template: tuple[Path, int]
    records = Bundle("records")
    copies = Bundle("copies")

    @initialize()
    def open(self) -> None:
        source, self.index = self.template
        self.folder = Path(tempfile.mkdtemp(prefix="gate-"))
        self.path = self.folder / "store.db"
        shutil.copy(source, self.path)
        self.clock, self.loop = HandClock(), asyncio.new_event_loop()
        self.signed: dict[str, ApprovalRecord] = {}
        self.nonce = counted_nonces()
        self.num_copies = 0
        self.workers = [self.make_worker(), self.make_worker()]

    def make_worker(self) -> Worker:
        return Worker(self.loop.run_until_complete, self.path, self.index, self.clock)

    def entries(self) -> list[Entry]:
        return list(self.workers[0].services.log.entries())

    def seen(self) -> list[tuple[str, str]]:
        """Interrupt and digest of everything that was ever shown."""
        requested = [entry.body for entry in self.entries() if entry.kind == "requested"]
        return [(body["interrupt_id"], body["digest"]) for body in requested]

    @rule(worker=workers)
    def play(self, worker: int) -> None:
        """Play on through the front door; the desk's answers count."""
        one = self.workers[worker]
        played = play_governed([one.case], one.services, one.seating, AbsentReviewer(), CALM)
        self.loop.run_until_complete(played)

    @rule(worker=workers, response=st.sampled_from(RESPONSES), back=ages)
    def submit(self, worker: int, response: ReviewResponse, back: int) -> None:
        """A reviewer answers at the desk what was shown last, or before."""
        one, seen = self.workers[worker], self.seen()
        interrupt_id, digest = seen[max(0, len(seen) - 1 - back)]
        with suppress(NotApprovedError):
            record = one.services.desk.submit(interrupt_id, digest, response, "ann")
            self.signed[record.nonce] = record

    @rule(
        target=records,
        response=st.sampled_from(RESPONSES),
        lifetime_s=st.sampled_from((1, 60, 600)),
        back=ages,
    )
    def sign(self, response: ReviewResponse, lifetime_s: int, back: int) -> ApprovalRecord:
        """An answer that is signed beside the desk and brought later, or never."""
        return self.make_record(response, lifetime_s, back)

    def make_record(self, response: ReviewResponse, lifetime_s: int, back: int) -> ApprovalRecord:
        seen = self.seen()
        interrupt_id, digest = seen[max(0, len(seen) - 1 - back)]
        record = issue_approval(
            response,
            key=KEY,
            thread=self.workers[0].thread,
            interrupt_id=interrupt_id,
            proposal_digest=digest,
            reviewer="ann",
            now_s=self.clock(),
            lifetime_s=lifetime_s,
            nonce="f" + self.nonce()[1:],
        )
        self.signed[record.nonce] = record
        return record

    @rule(target=records, worker=workers, node=st.sampled_from((None, *NODES)))
    def approve(self, worker: int, node: str | None) -> ApprovalRecord:
        """An honest approval of what waits; the worker may stop before a node, as a crash would."""
        record = self.make_record(RESPONSES[0], 600, 0)
        waiting = self.workers[worker].state().interrupts
        if waiting:
            step: Any = Command(resume={waiting[0].id: record.model_dump()})
            self.workers[worker].go(step, interrupt_before=[node] if node else None)
        return record

    @rule(worker=workers, record=records)
    def answer(self, worker: int, record: ApprovalRecord) -> None:
        """Resume what waits, with any answer."""
        waiting = self.workers[worker].state().interrupts
        if waiting:
            self.workers[worker].go(Command(resume={waiting[0].id: record.model_dump()}))

    @rule(worker=workers, record=records, node=st.sampled_from(NODES))
    def answer_and_stop(self, worker: int, record: ApprovalRecord, node: str) -> None:
        """Resume what waits with any answer, and stop before a node."""
        waiting = self.workers[worker].state().interrupts
        if waiting:
            step: Any = Command(resume={waiting[0].id: record.model_dump()})
            self.workers[worker].go(step, interrupt_before=[node])

    @rule(worker=workers, back=st.integers(0, 12), record=records, is_answered=st.booleans())
    def travel(self, worker: int, back: int, record: ApprovalRecord, is_answered: bool) -> None:
        """Go on from an earlier checkpoint, with an answer or without."""
        config = self.workers[worker].history(back + 1)[-1].config
        step: Any = Command(resume={record.interrupt_id: record.model_dump()}) if is_answered else None
        self.workers[worker].go(step, config)

    @rule(worker=workers, record=records)
    def claim(self, worker: int, record: ApprovalRecord) -> None:
        """Write an approval into the state as if the review had judged it."""
        one = self.workers[worker]
        values = {"ruling": {"ruling": "approve", "approval": record.model_dump()}}
        self.loop.run_until_complete(one.graph.aupdate_state(one.config, values, as_node="review"))
        one.go(None)

    @rule(seconds=st.sampled_from((-700, -60, 1, 60, 700)))
    def tick(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @rule(worker=workers)
    def crash(self, worker: int) -> None:
        self.workers[worker].end(is_orderly=False)
        self.workers[worker] = self.make_worker()

    @rule()
    def wipe(self) -> None:
        """The copies of what was shown vanish from the file, without the key."""
        with sqlite3.connect(self.path) as connection:
            connection.execute("DELETE FROM requests")
        connection.close()

    @rule(target=copies)
    def copy(self) -> Path:
        """Somebody keeps a copy of the whole store."""
        self.num_copies += 1
        path = self.folder / f"copy{self.num_copies}.db"
        with sqlite3.connect(self.path) as source, sqlite3.connect(path) as target:
            source.backup(target)
        source.close()
        target.close()
        return path

    @precondition(lambda self: self.num_copies)
    @rule(copy=copies)
    def restore(self, copy: Path) -> None:
        """The copy is put in the store's place: noticed, unless nothing was written since."""
        head = self.workers[0].services.log.head()
        for one in self.workers:
            one.end(is_orderly=True)
        newest = self.folder / "newest.db"
        shutil.copy(self.path, newest)
        self.put(copy)
        with sqlite3.connect(copy) as connection:
            last = "SELECT hash FROM decision_log ORDER BY sequence DESC LIMIT 1"
            is_newest = connection.execute(last).fetchone()[0] == head
        connection.close()
        if not is_newest:
            with pytest.raises(UserError, match="old copy"):
                self.make_worker()
            self.put(newest)
        self.workers = [self.make_worker(), self.make_worker()]

    def put(self, copy: Path) -> None:
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        shutil.copy(copy, self.path)

    def check_gate(self) -> None:
        entries = self.entries()
        check_log(entries, self.signed)
        assert verify_chain(entries) is None

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            self.check_gate()
            for one in self.workers:
                one.end(is_orderly=True)
            self.loop.close()
            shutil.rmtree(self.folder)


@pytest.mark.parametrize("part", range(num_trials(1, 20)))
def test_the_gate_holds_in_any_order_of_events(part: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    GateMachine.template = prepare_store(tmp_path_factory.mktemp("template"))
    run_state_machine_as_test(
        seed(part)(GateMachine),
        settings=settings(
            max_examples=num_trials(20, SEQUENCES_PER_PART),
            stateful_step_count=STEPS,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
