"""The effects ledger: what a model said is recorded in its own transaction and never asked again.

LangGraph runs a node again where a kill came between its work and its checkpoint. The key of an effect is
(thread, node, superstep, input digest): the second run finds the first one's result. A call that was under
way at the kill is made again, one whose result was recorded is not.
"""

from typing import Any, NamedTuple

from simulator.governance.gate.approvals import refuse
from simulator.governance.store.database import Store, canonical_json, read_json, transaction

SPOKEN = ("text", "turns")  # what every result holds


class EffectKey(NamedTuple):
    """The identity of an effect.

    Example: EffectKey(thread="t1", node="execute_cto", superstep=7, input_digest="9f2c...")
    """

    thread: str
    node: str
    superstep: int
    input_digest: str


class EffectsLedger:
    """Effects of one store, each recorded once."""

    def __init__(self, connection: Store) -> None:
        self._connection = connection

    def recall(self, key: EffectKey) -> Any | None:
        """Return the recorded result, None where there is none."""
        row = self._connection.execute(
            "SELECT result FROM effects WHERE thread = ? AND node = ? AND superstep = ? AND input_digest = ?",
            key,
        ).fetchone()
        return None if row is None else _load(row[0])

    def record(self, key: EffectKey, result: Any) -> Any:
        """Record a result, not None; where one was recorded meanwhile, that one stands and is returned."""
        with transaction(self._connection):
            known = self.recall(key)
            if known is None:
                self._connection.execute(
                    "INSERT INTO effects VALUES (?, ?, ?, ?, ?)", (*key, canonical_json(result))
                )
            return result if known is None else known

    def results_by_input(self, thread: str, input_digests: list[str]) -> list[Any | None]:
        """Return for each digest the result of the thread's latest effect on that input; None without one."""
        query = (
            "SELECT result FROM effects WHERE thread = ? AND input_digest = ? ORDER BY superstep DESC LIMIT 1"
        )
        rows = [self._connection.execute(query, (thread, digest)).fetchone() for digest in input_digests]
        return [None if row is None else _load(row[0]) for row in rows]

    def trace(self, thread: str) -> list[tuple[int, str, Any]]:
        """Return (superstep, node, result) of all effects of a thread, in this order, without times."""
        rows = self._connection.execute(
            "SELECT superstep, node, result FROM effects WHERE thread = ? ORDER BY superstep, node, result",
            (thread,),
        )
        return [(superstep, node, _load(result)) for superstep, node, result in rows.fetchall()]


def _load(text: str) -> Any:
    result = read_json(text)
    if not isinstance(result, dict) or [*map(type, map(result.get, SPOKEN))] != [str, list]:
        refuse("tampered", "the recorded result of an effect was damaged")
    return result
