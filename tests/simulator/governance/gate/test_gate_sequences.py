"""G2: whatever two workers, a reviewer and somebody with the files do, in any order, the gate's rules hold.

The decision log is replayed by an oracle of its own after every step: commits only for live approvals of what
was shown, one for an attempt, deliveries only of what was committed, after the close nothing but refusals.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from governed_tables import CALM, HandClock, Stand, find_gate_case, make_stand, stand_at_gate
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.errors import EmptyInputError
from langgraph.types import Command
from trial_counts import num_trials

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import InfrastructureError, UserError
from simulator.governance.gate import LIFETIME_S
from simulator.governance.log import Entry, verify_chain
from simulator.governance.proposal import ReviewResponse
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError

SEQUENCES_PER_PART = 500
STEPS = 20
RESPONSES = (
    ReviewResponse(decision="approve"),
    ReviewResponse(decision="reject", feedback="no"),
    ReviewResponse(decision="edit", option="none"),
    ReviewResponse(decision="edit", option="C"),
)
NODES = ("commit", "reconcile", "propose", "execute_cto", "monitor", "close")
JUMPS = ("propose", "review", "commit", "execute_cto", "monitor", "replan", "close")
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


def check_log(entries: list[Entry]) -> None:
    """Replay the log: every commit and delivery must have been permitted when it was made."""
    shown, answered, attempts = ("", ""), dict[str, Entry](), set[int]()
    committed: set[str] = set()
    delivered: set[tuple[str, str]] = set()
    refused: set[str] = set()
    is_closed = False
    for entry in entries:
        body = entry.body
        assert not is_closed or entry.kind in ("refused", "said"), f"{entry.kind} after the close"
        if entry.kind == "requested":
            shown = (body["interrupt_id"], body["digest"])
        elif entry.kind in ("approved", "edited", "rejected"):
            assert (body["interrupt_id"], body["digest"]) == shown
            assert body["interrupt_id"] not in answered
            assert body["interrupt_id"] not in refused
            answered[body["interrupt_id"]] = entry
        elif entry.kind == "refused":
            refused.add(body.get("interrupt_id", ""))
        elif entry.kind == "committed":
            answer = answered[body["interrupt_id"]]
            assert answer.kind == "approved"
            assert shown == (body["interrupt_id"], body["digest"])
            assert body["interrupt_id"] not in refused
            assert entry.at_s < answer.body["expires_at_s"]
            assert body["attempt"] not in attempts
            attempts.add(body["attempt"])
            committed.add(body["digest"])
        elif entry.kind == "executed":
            assert body["digest"] in committed
            assert (body["digest"], body["role"]) not in delivered
            delivered.add((body["digest"], body["role"]))
        is_closed = is_closed or entry.kind == "closed"


class Worker:
    """A process on the store: its services, and the handles of one thread, which it plays once it is used."""

    def __init__(self, run: Callable[[Any], Any], path: Path, index: int, clock: HandClock) -> None:
        self._run, self._stack = run, AsyncExitStack()
        scenarios = draw_cases(index + 1)
        self.case, self.seating = scenarios[index], make_seating(scenarios)
        opened = open_services(path, key=KEY, clock=clock)
        self.services = run(self._stack.enter_async_context(opened))
        self._path, self._clock = path, clock

    @cached_property
    def stand(self) -> Stand:
        stand = make_stand(self.services, self._clock, self.case, self._path, self.seating)
        self._run(stand.start())
        return stand

    def state(self) -> Any:
        return self._run(self.stand.graph.aget_state(self.stand.config))

    def history(self, limit: int) -> list[Any]:
        stand = self.stand

        async def read() -> list[Any]:
            return [one async for one in stand.graph.aget_state_history(stand.config, limit=limit)]

        return list(self._run(read()))

    def go(self, step: Any, config: Any = None, **options: Any) -> None:
        with suppress(NotApprovedError, EmptyInputError):
            self._run(
                self.stand.graph.ainvoke(
                    step,
                    config or self.stand.config,
                    context=self.stand.context,
                    durability="sync",
                    **options,
                )
            )

    def end(self, *, is_orderly: bool) -> None:
        if not is_orderly:  # what a kill leaves undone
            self.services.log.mark = None
        self._run(self._stack.aclose())


class GateMachine(RuleBasedStateMachine):
    """Draws sequences of what can happen to one case."""

    template: tuple[Path, int]
    copies = Bundle("copies")

    @initialize()
    def open(self) -> None:
        source, self.index = self.template
        self.folder = Path(tempfile.mkdtemp(prefix="gate-"))
        self.path = self.folder / "store.db"
        shutil.copy(source, self.path)
        self.clock, self.loop = HandClock(), asyncio.new_event_loop()
        self.num_copies = 0
        self.workers = [self.make_worker(), self.make_worker()]
        for one in self.workers:
            assert one.stand.path == self.path  # both stand at the gate, so that one is soon out of date

    def make_worker(self) -> Worker:
        return Worker(self.loop.run_until_complete, self.path, self.index, self.clock)

    def entries(self) -> list[Entry]:
        return list(self.workers[0].services.log.entries())

    def seen(self) -> list[tuple[str, str]]:
        """Name and digest of everything that was ever shown."""
        requested = [entry.body for entry in self.entries() if entry.kind == "requested"]
        return [(body["interrupt_id"], body["digest"]) for body in requested]

    @rule(worker=workers)
    def play(self, worker: int) -> None:
        """Play from the beginning through the front door."""
        one = self.workers[worker]
        played = play_governed([one.case], one.services, one.seating, AbsentReviewer(), CALM)
        self.loop.run_until_complete(played)

    @rule(worker=workers, response=st.sampled_from(RESPONSES), back=ages)
    def submit(self, worker: int, response: ReviewResponse, back: int) -> None:
        """A reviewer answers at the desk what was shown last, or before."""
        seen = self.seen()
        interrupt_id, digest = seen[max(0, len(seen) - 1 - back)]
        with suppress(NotApprovedError):
            self.workers[worker].services.gate.submit(interrupt_id, digest, response, "ann")

    @rule(worker=workers, node=st.sampled_from((None, *NODES)))
    def approve(self, worker: int, node: str | None) -> None:
        """An honest approval of what waits; the worker may stop before a node, as a crash would."""
        self.submit(worker, RESPONSES[0], 0)
        self.wake(worker, node)

    @rule(worker=workers, node=st.sampled_from((None, *NODES)))
    def wake(self, worker: int, node: str | None) -> None:
        """Resume what waits with a claim, and perhaps stop before a node."""
        if self.workers[worker].state().interrupts:
            step: Any = Command(resume={"decision": "approve"})
            self.workers[worker].go(step, interrupt_before=[node] if node else None)

    @rule(worker=workers, back=st.integers(0, 12), is_answered=st.booleans())
    def travel(self, worker: int, back: int, is_answered: bool) -> None:
        """Go on from an earlier checkpoint, with an answer or without."""
        config = self.workers[worker].history(back + 1)[-1].config
        self.workers[worker].go(Command(resume=True) if is_answered else None, config)

    @rule(worker=workers, shown=st.integers(-1, 4), node=st.sampled_from(JUMPS))
    def jump(self, worker: int, shown: int, node: str) -> None:
        """Point the state to any display, and go on at any node."""
        one = self.workers[worker]
        update = one.stand.graph.aupdate_state(one.stand.config, {"shown": shown}, as_node="close")
        one.go(Command(goto=node), self.loop.run_until_complete(update))

    @rule(seconds=st.sampled_from((-LIFETIME_S - 9, -LIFETIME_S // 9, 1, LIFETIME_S // 9, LIFETIME_S + 9)))
    def tick(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @rule(worker=workers)
    def crash(self, worker: int) -> None:
        self.workers[worker].end(is_orderly=False)
        self.workers[worker] = self.make_worker()

    @rule(target=copies)
    def copy(self) -> Path:
        """Somebody keeps a copy of the whole store."""
        self.num_copies += 1
        return self.copy_to(f"copy{self.num_copies}.db")

    @precondition(lambda self: self.num_copies)
    @rule(copy=copies)
    def restore(self, copy: Path) -> None:
        """The copy is put in the store's place: noticed at the opening, unless nothing was written since."""
        head = self.workers[0].services.log.head()
        for one in self.workers:
            one.end(is_orderly=True)
        newest = self.folder / "newest.db"
        shutil.copy(self.path, newest)
        self.put(copy)
        if self.read_head(copy) != head:
            with pytest.raises(UserError, match="old copy"):
                self.make_worker()
            self.put(newest)
        self.workers = [self.make_worker(), self.make_worker()]

    @precondition(lambda self: self.num_copies)
    @rule(copy=copies, worker=workers, response=st.sampled_from(RESPONSES))
    def restore_live(self, copy: Path, worker: int, response: ReviewResponse) -> None:
        """The copy is written over the live store: nothing is ruled and done on it, by nobody."""
        if self.read_head(copy) == self.workers[0].services.log.head():
            return
        seen, newest = self.seen(), self.copy_to("newest.db")
        copy_file(copy, self.path)
        num_entries = count_entries(self.path)
        interrupt_id, digest = seen[-1]
        with pytest.raises((NotApprovedError, InfrastructureError)):
            self.workers[worker].services.gate.submit(interrupt_id, digest, response, "ann")
        with suppress(InfrastructureError):
            self.workers[1 - worker].go(None)
        with pytest.raises(UserError, match="old copy"):
            self.make_worker()
        assert count_entries(self.path) == num_entries
        for one in self.workers:
            one.end(is_orderly=False)
        self.put(newest)
        self.workers = [self.make_worker(), self.make_worker()]

    def copy_to(self, name: str) -> Path:
        copy_file(self.path, self.folder / name)
        return self.folder / name

    def read_head(self, path: Path) -> str:
        with closing(sqlite3.connect(path)) as store:
            last = "SELECT hash FROM decision_log ORDER BY sequence DESC LIMIT 1"
            return str(store.execute(last).fetchone()[0])

    def put(self, copy: Path) -> None:
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        shutil.copy(copy, self.path)

    def check_gate(self) -> None:
        entries = self.entries()
        check_log(entries)
        assert verify_chain(entries) is None

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            self.check_gate()
            for one in self.workers:
                one.end(is_orderly=True)
            self.loop.close()
            shutil.rmtree(self.folder)


def copy_file(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def count_entries(path: Path) -> int:
    with closing(sqlite3.connect(path)) as store:
        return int(store.execute("SELECT count(*) FROM decision_log").fetchone()[0])


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
