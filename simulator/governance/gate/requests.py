"""The store's requests: what was shown to a reviewer, under seal, and the ruling on it, under seal.

A request is open while it is the latest of its thread, nobody has ruled on it and the case is not closed.
The decision log is asked too, so that a row that was deleted or emptied opens nothing.
"""

import json
from typing import Any, Literal, NamedTuple

from typing_extensions import TypedDict

from simulator.governance.gate.approvals import Proposal, refuse
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import Store, canonical_json, transaction
from simulator.governance.store.decision_log import DecisionLog


class Settled(TypedDict):
    """The ruling on a request, as JSON.

    Example: {"ruling": "refused", "reason": "expired", "option": None, "feedback": "", "approval": None}
    """

    ruling: Literal["approve", "edit", "reject", "refused"]
    reason: str  # of a refusal, one word; "" otherwise
    option: str | None  # the reviewer's own, after an edit
    feedback: str
    approval: dict[str, Any] | None  # the signed record of an approval, for the commit to verify


class Shown(NamedTuple):
    """A request as it was shown."""

    thread: str
    digest: str
    body: dict[str, Any]


class Requests:
    """Requests of one store."""

    def __init__(self, connection: Store, *, key: bytes, log: DecisionLog) -> None:
        self._connection, self._key, self._log = connection, key, log

    def open(self, interrupt_id: str, proposal: Proposal, body: dict[str, Any]) -> None:
        """Keep what is shown under this interrupt; the first time counts, it is never shown anew.

        Raises:
            NotApprovedError: "closed".
        """
        with transaction(self._connection):
            self.require_unclosed(proposal.thread)
            text, digest = canonical_json(body), proposal.digest
            sealed = seal(self._key, "request", [proposal.thread, interrupt_id, digest, text])
            added = self._connection.execute(
                "INSERT OR IGNORE INTO requests (thread, interrupt_id, digest, body, seal)"
                " VALUES (?, ?, ?, ?, ?)",
                (proposal.thread, interrupt_id, digest, text, sealed),
            )
            if added.rowcount:
                told = {"option": proposal.option, "risk_score": proposal.risk_score}
                entry = {"digest": digest, "interrupt_id": interrupt_id, **told}
                self._log.append(proposal.thread, "requested", entry)

    def read(self, interrupt_id: str) -> Shown:
        """Return what was shown.

        Raises:
            NotApprovedError: "unknown", or "forged" where the row was changed since.
        """
        row = self._connection.execute(
            "SELECT thread, digest, body, seal FROM requests WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        if row is None:
            refuse("unknown", "there is no such request")
        thread, digest, text, sealed = row
        if not is_sealed(self._key, "request", [thread, interrupt_id, digest, text], sealed):
            refuse("forged", "the request on disk is not the one that was shown")
        return Shown(thread, digest, json.loads(text))

    def find_latest(self, thread: str) -> tuple[str, str]:
        """Return interrupt and digest of the thread's latest request, as the log tells.

        Raises:
            NotApprovedError: "never_displayed", or "tampered".
        """
        entries = self._log.find(thread, "requested")
        if not entries:
            refuse("never_displayed", f"nothing was ever displayed in thread {thread!r}")
        return str(entries[-1].body["interrupt_id"]), str(entries[-1].body["digest"])

    def require_unclosed(self, thread: str) -> None:
        """Refuse where the case is closed.

        Raises:
            NotApprovedError: "closed", or "tampered".
        """
        if self._log.find(thread, "closed"):
            refuse("closed", f"the case of thread {thread!r} is closed")

    def require_open(self, interrupt_id: str) -> Shown:
        """Return what was shown, if the request may still be ruled on.

        Raises:
            NotApprovedError: "unknown", "forged", "tampered", "closed", "superseded" or "settled".
        """
        shown = self.read(interrupt_id)
        self.require_unclosed(shown.thread)
        if self.find_latest(shown.thread)[0] != interrupt_id:
            refuse("superseded", "a later request stands in this thread")
        settled = self.find_settled(interrupt_id)
        if settled is not None:
            refuse("settled", f"the request was settled: {settled['ruling']} {settled['reason']}".strip())
        self.require_unruled(shown.thread, interrupt_id)
        return shown

    def require_unruled(self, thread: str, interrupt_id: str) -> None:
        """Refuse where the log tells that the request was edited, rejected or refused.

        Raises:
            NotApprovedError: "settled", or "tampered".
        """
        for entry in self._log.find(thread, "edited", "rejected", "refused"):
            if entry.body.get("interrupt_id") == interrupt_id:
                refuse("settled", f"the request was {entry.kind}")

    def find_settled(self, interrupt_id: str) -> Settled | None:
        """Return the ruling on the request; None while it is open or unknown.

        Raises:
            NotApprovedError: "forged": the ruling on disk is not one of ours.
        """
        row = self._connection.execute(
            "SELECT settled FROM requests WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        if row is None or row[0] is None:
            return None
        value: dict[str, Any]
        try:
            value = dict(json.loads(row[0]))
        except (ValueError, TypeError):
            value = {}
        sealed = value.pop("seal", None)
        if not is_sealed(self._key, "ruling", [interrupt_id, value], sealed):
            refuse("forged", "the ruling on disk is not one of the gate's")
        settled: Settled = Settled(**value)  # type: ignore[typeddict-item]
        return settled

    def settle(self, interrupt_id: str, settled: Settled) -> None:
        """Keep the ruling, under seal; inside an open transaction it stands or falls with that."""
        sealed = {**settled, "seal": seal(self._key, "ruling", [interrupt_id, settled])}
        self._connection.execute(
            "UPDATE requests SET settled = ? WHERE interrupt_id = ?", (canonical_json(sealed), interrupt_id)
        )


def make_refusal(reason: str) -> Settled:
    """Return the ruling on a request whose answer did not count."""
    return Settled(ruling="refused", reason=reason, option=None, feedback="", approval=None)
