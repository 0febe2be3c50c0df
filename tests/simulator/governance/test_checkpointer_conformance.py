"""LangGraph's own conformance suite passes for the checkpointers that governed episodes are kept by."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityReport
from langgraph.checkpoint.serde.types import RESUME

from simulator.governance.store.checkpoint_saver import StoreSaver, strict_serializer
from simulator.governance.store.database import open_store

BASE = ("put", "put_writes", "get_tuple", "list", "delete_thread")


def examine(path: Path | None, *, is_grouped: bool, kind: type[StoreSaver] = StoreSaver) -> CapabilityReport:
    """What the suite finds, each capability in a store of its own."""

    async def open_saver() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        number = next(numbers)
        store = open_store(path and path / f"{number}.db")
        if is_grouped:
            with store.grouping():
                yield kind(store, serde=strict_serializer())
        else:
            yield kind(store, serde=strict_serializer())
        store.close()

    numbers = iter(range(100))
    return asyncio.run(validate(checkpointer_test(name="store")(open_saver)))


@pytest.mark.parametrize("is_grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_the_store_is_a_conforming_checkpointer(is_on_disk: bool, is_grouped: bool, tmp_path: Path) -> None:
    report = examine(tmp_path if is_on_disk else None, is_grouped=is_grouped)
    failures = [failure for name in BASE for failure in report.results[name].failures]
    assert failures == []
    assert report.passed_all_base()
    assert sum(report.results[name].tests_passed for name in BASE) > 40


def test_the_suite_sees_a_checkpointer_that_forgets() -> None:
    class Forgetful(StoreSaver):
        def _read_values(self, thread: str, namespace: str, versions: Any) -> dict[str, Any]:
            return {}

    assert not examine(None, is_grouped=False, kind=Forgetful).passed_all_base()


def test_a_write_counts_as_it_was_first_a_resume_as_it_was_last() -> None:
    """A task that ran twice wrote the same; an interrupt may be answered again before its superstep ends."""

    async def run() -> None:
        saver = StoreSaver(open_store(None), serde=strict_serializer())
        place: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        place = await saver.aput(place, empty_checkpoint(), {"source": "input", "step": -1}, {})
        for attempt in ("first", "second"):
            await saver.aput_writes(place, [("status", attempt), ("round", 1)], "b", "~2")
            await saver.aput_writes(place, [(RESUME, attempt)], "b", "~2")
        await saver.aput_writes(place, [("status", "other")], "c", "~1")
        found = await saver.aget_tuple(place)
        assert found is not None
        assert found.pending_writes == [
            ("c", "status", "other"),
            ("b", RESUME, "second"),
            ("b", "status", "first"),
            ("b", "round", 1),
        ]

    asyncio.run(run())


def test_a_fork_keeps_its_own_values() -> None:
    """Two children of one checkpoint write the same channel; each is read back with its own value."""

    async def run() -> None:
        saver = StoreSaver(open_store(None), serde=strict_serializer())
        place: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        old: ChannelVersions = {
            "option": saver.get_next_version(None, None),
            "case": saver.get_next_version(None, None),
        }
        root = {**empty_checkpoint(), "channel_values": {"option": "A", "case": "k"}, "channel_versions": old}
        parent = await saver.aput(place, cast(Checkpoint, root), {"source": "input", "step": -1}, old)
        children = []
        for option in ("B", "C"):
            new: ChannelVersions = {"option": saver.get_next_version(str(old["option"]), None)}
            child = {**root, "id": f"9{option}", "channel_versions": {**old, **new}}
            child["channel_values"] = {"option": option, "case": "k"}
            children.append(
                await saver.aput(parent, cast(Checkpoint, child), {"source": "fork", "step": 0}, new)
            )
        for where, option in ((parent, "A"), (children[0], "B"), (children[1], "C"), (place, "C")):
            found = await saver.aget_tuple(where)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"option": option, "case": "k"}

    asyncio.run(run())
