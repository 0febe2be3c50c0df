"""The store's requests: what was displayed to a reviewer, kept beside the log, which holds its digest.

A request is open while it is the latest of its thread, nobody has ruled on it and the case is not closed.
"""

import hashlib
from typing import Any, NamedTuple

from simulator.governance.gate.approvals import Proposal, refuse
from simulator.governance.gate.standing import Standing
from simulator.governance.store.database import Store, canonical_json, read_json, transaction
from simulator.governance.store.decision_log import DecisionLog


class Shown(NamedTuple):
    """A request as it was shown."""

    thread: str
    digest: str
    body: dict[str, Any]


class Requests:
    """Requests of one store."""

    def __init__(self, connection: Store, *, log: DecisionLog) -> None:
        self._connection, self._log = connection, log

    def stand(self, thread: str) -> Standing:
        """Return how a case stands.

        Raises:
            NotApprovedError: "tampered".
        """
        return Standing(thread, self._log.read(thread))

    def open(self, interrupt_id: str, proposal: Proposal, body: dict[str, Any]) -> None:
        """Keep what is shown under this interrupt; the first time counts, it is never shown anew.

        Raises:
            NotApprovedError: "closed".
        """
        with transaction(self._connection):
            standing = self.stand(proposal.thread)
            standing.require_unclosed()
            text, known = canonical_json(body), standing.find_shown(interrupt_id)
            digest = _digest(text)
            if known is None:
                told = {"option": proposal.option, "risk_score": proposal.risk_score, "shown": digest}
                entry = {"digest": proposal.digest, "interrupt_id": interrupt_id, **told}
                self._log.append(proposal.thread, "requested", entry)
            elif known.body["shown"] != digest:
                return
            self._connection.execute(
                "INSERT INTO requests (interrupt_id, thread, body) VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET body = excluded.body",
                (interrupt_id, proposal.thread, text),
            )

    def find_standing(self, interrupt_id: str) -> Standing | None:
        """Return how the case stands in which this request was displayed; None where none was."""
        query = "SELECT thread FROM requests WHERE interrupt_id = ?"
        for (thread,) in self._connection.execute(query, (interrupt_id,)).fetchall():
            standing = self.stand(str(thread))
            if standing.find_shown(interrupt_id) is not None:
                return standing
        return None

    def read(self, interrupt_id: str) -> Shown:
        """Return what was shown.

        Raises:
            NotApprovedError: "unknown", or "forged" where the copy on disk was changed since.
        """
        standing = self.find_standing(interrupt_id)
        entry = None if standing is None else standing.find_shown(interrupt_id)
        if standing is None or entry is None:
            refuse("unknown", "there is no such request")
        found = self._connection.execute(
            "SELECT body FROM requests WHERE interrupt_id = ? AND thread = ?", (interrupt_id, standing.thread)
        ).fetchone()
        if found is None or not isinstance(found[0], str) or _digest(found[0]) != entry.body["shown"]:
            refuse("forged", "the request on disk is not the one that was shown")
        return Shown(standing.thread, str(entry.body["digest"]), read_json(found[0]))

    def require_open(self, interrupt_id: str) -> Shown:
        """Return what was shown, if the request may still be ruled on.

        Raises:
            NotApprovedError: "unknown", "forged", "tampered", "closed", "superseded" or "settled".
        """
        shown = self.read(interrupt_id)
        standing = self.stand(shown.thread)
        standing.require_unclosed()
        if standing.require_latest().body["interrupt_id"] != interrupt_id:
            refuse("superseded", "a later request stands in this thread")
        settled = standing.find_settled(interrupt_id)
        if settled is not None:
            refuse("settled", f"the request was settled: {settled['ruling']} {settled['reason']}".strip())
        return shown

    def list_threads(self) -> list[str]:
        """Return the threads that displayed something and are not closed, in order."""
        self._log.head()
        return list(self._log.open_threads)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
