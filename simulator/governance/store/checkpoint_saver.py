"""Keeps LangGraph's checkpoints in the store: one row per superstep, one per task, committed in groups.

A checkpoint row holds only the channels that its superstep has written; what was written before is read from
earlier rows. A checkpoint that `aput` has returned from is on disk, and so is every effect before it.
Reading is synchronous work on the loop's own connection: a few rows by an index. Deserialisation is strict
(what LANGGRAPH_STRICT_MSGPACK=true asks for), whatever the environment says.
"""

import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from simulator.governance.gate.approvals import refuse
from simulator.governance.store.database import Store, transaction

_COLUMNS = "thread, namespace, id, parent, type, body, metadata"
_LATEST = (  # a checkpoint that was put twice counts once
    "sequence = (SELECT max(sequence) FROM checkpoints AS c"
    " WHERE c.thread = o.thread AND c.namespace = o.namespace AND c.id = o.id)"
)
_Row = tuple[str, str, str, str | None, str, bytes, str]


def strict_serializer() -> JsonPlusSerializer:
    """Plain types and LangGraph's own only; anything else comes back as data, and no code is run."""
    return JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


class StoreSaver(BaseCheckpointSaver[str]):
    """Checkpoints of one store. Writing needs the event loop; LangGraph's synchronous calls can only read."""

    def __init__(self, store: Store, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde or strict_serializer())
        self._store = store

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Draw a version: a count and a random part, so that two forks never share one; compares as text."""
        count = int(current[:8], 16) if current else 0
        return f"{count + 1:08x}{random.getrandbits(32):08x}"

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint; on disk when this returns."""
        place = config["configurable"]
        thread, namespace = str(place["thread_id"]), str(place.get("checkpoint_ns", ""))
        values = checkpoint["channel_values"]
        written = {
            channel: [version, values[channel]] if channel in values else [version]
            for channel, version in new_versions.items()
        }
        kind, body = self.serde.dumps_typed({**checkpoint, "channel_values": {}})
        described = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        with transaction(self._store):
            self._store.execute(
                f"INSERT INTO checkpoints ({_COLUMNS}, written) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(thread, namespace, checkpoint["id"], place.get("checkpoint_id"), kind, body, described),
                    self.serde.dumps_typed(written)[1],
                ),
            )
        await self._store.committed()
        return _locate(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task has written before its superstep ends; on disk when this returns."""
        place = config["configurable"]
        numbered = [
            [WRITES_IDX_MAP.get(channel, index), channel, value]
            for index, (channel, value) in enumerate(writes)
        ]
        with transaction(self._store):
            self._store.execute(
                "INSERT INTO checkpoint_writes (thread, namespace, id, task, path, type, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(str(place["thread_id"]), str(place.get("checkpoint_ns", "")), place["checkpoint_id"]),
                    *(task_id, task_path, *self.serde.dumps_typed(numbered)),
                ),
            )
        await self._store.committed()

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget a thread's checkpoints; its effects and decisions stay."""
        with transaction(self._store):
            self._store.execute("DELETE FROM checkpoints WHERE thread = ?", (thread_id,))
            self._store.execute("DELETE FROM checkpoint_writes WHERE thread = ?", (thread_id,))
        await self._store.committed()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that is named, else the thread's latest in this namespace."""
        place = config["configurable"]
        where, given = (
            "thread = ? AND namespace = ?",
            [str(place["thread_id"]), place.get("checkpoint_ns", "")],
        )
        if checkpoint_id := get_checkpoint_id(config):
            where, given = f"{where} AND id = ?", [*given, checkpoint_id]
        row = self._store.execute(
            f"SELECT {_COLUMNS} FROM checkpoints WHERE {where} ORDER BY id DESC, sequence DESC LIMIT 1", given
        ).fetchone()
        return None if row is None else self._read(row)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See get_tuple."""
        return self.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, the newest first; `filter` compares metadata for equality."""
        named = dict(config["configurable"]) if config else {}
        wanted = {
            "thread = ?": named.get("thread_id"),
            "namespace = ?": named.get("checkpoint_ns"),
            "id = ?": named.get("checkpoint_id"),
            "id < ?": get_checkpoint_id(before) if before else None,
        }
        given = {where: str(value) for where, value in wanted.items() if value is not None}
        where = " AND ".join([_LATEST, *given])
        rows = self._store.execute(
            f"SELECT {_COLUMNS} FROM checkpoints AS o WHERE {where} ORDER BY id DESC", tuple(given.values())
        ).fetchall()
        found = 0
        for row in rows:
            if limit is not None and found >= limit:
                return
            metadata = json.loads(row[-1])
            if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                found += 1
                yield self._read(row)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See list."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    def _read(self, row: _Row) -> CheckpointTuple:
        """Read one checkpoint.

        Raises:
            NotApprovedError: "tampered": it was damaged on disk.
        """
        try:
            return self._decode(row)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            refuse("tampered", f"a checkpoint of thread {row[0]!r} was damaged ({type(error).__name__})")

    def _decode(self, row: _Row) -> CheckpointTuple:
        thread, namespace, checkpoint_id, parent, kind, body, metadata = row
        checkpoint = self.serde.loads_typed((kind, body))
        checkpoint["channel_values"] = self._read_values(thread, namespace, checkpoint["channel_versions"])
        return CheckpointTuple(
            config=_locate(thread, namespace, checkpoint_id),
            checkpoint=checkpoint,
            metadata=cast(CheckpointMetadata, json.loads(metadata)),
            parent_config=_locate(thread, namespace, parent) if parent else None,
            pending_writes=[*self._read_writes(thread, namespace, checkpoint_id)],
        )

    def _read_values(self, thread: str, namespace: str, versions: ChannelVersions) -> dict[str, Any]:
        """Read every channel's value at its version, from the rows that wrote them, the newest first."""
        wanted, values = dict(versions), {}
        rows = self._store.execute(
            "SELECT type, written FROM checkpoints WHERE thread = ? AND namespace = ? ORDER BY sequence DESC",
            (thread, namespace),
        )
        for row in rows:
            if not wanted:
                break
            for channel, (version, *value) in self.serde.loads_typed(row).items():
                if channel in wanted and wanted[channel] == version:
                    del wanted[channel]
                    values.update({channel: value[0]} if value else {})
        rows.close()
        return values

    def _read_writes(self, thread: str, namespace: str, checkpoint_id: str) -> Sequence[PendingWrite]:
        """Read a task's writes: of one kept twice the first counts, of errors and resumes the last."""
        kept: dict[tuple[str, int], tuple[str, str, Any]] = {}
        for task, path, kind, body in self._store.execute(
            "SELECT task, path, type, body FROM checkpoint_writes"
            " WHERE thread = ? AND namespace = ? AND id = ? ORDER BY sequence",
            (thread, namespace, checkpoint_id),
        ).fetchall():
            for index, channel, value in self.serde.loads_typed((kind, body)):
                if index < 0 or (task, index) not in kept:
                    kept[task, index] = (path, channel, value)
        ordered = sorted(kept.items(), key=lambda item: writes_sort_key(item[1][0], *item[0]))
        return [(task, channel, value) for (task, _), (_, channel, value) in ordered]


def _locate(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    place = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return RunnableConfig(configurable=place)
