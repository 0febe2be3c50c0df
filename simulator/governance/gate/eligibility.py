"""Rules of who may rule: registered people or the simulated reviewer, never a seat of the case."""

import re
import unicodedata

from roles.team import RECONCILER, SPECIALISTS
from simulator.governance.gate.approvals import ApprovalRecord, Proposal, refuse, verify_approval
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import Store, canonical_json, read_json, transaction
from simulator.governance.store.decision_log import DecisionLog

STORE = ""  # stands for the whole store where the decision log names threads
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
LOOKALIKES = str.maketrans(  # small Cyrillic and Greek letters that look like Latin ones
    "\u0430\u0432\u0441\u0435\u0455\u0456\u0458\u043a\u04cf\u043c\u043d\u043e\u0440\u051b\u0433\u0442"
    "\u03c5\u0475\u0445\u0443\u051d\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c7\u03b3",
    "abcesijklmhopqrtuvxywaeikvoptxy",
)
SIMULATED, TERMINAL = "simulated", "terminal"  # registered in every store
WEB = "web"  # stands for all who review in the browser; each signs under a registered name


class Reviewers:
    """Registered reviewers of one store, and the cases in which a person was asked.

    With `four_eyes` an approval counts only after a first one of the same request by another reviewer, and
    both are people. A store that was once opened with it keeps it: the decision log tells.
    """

    def __init__(self, connection: Store, *, key: bytes, log: DecisionLog, four_eyes: bool = False) -> None:
        self._connection, self._key, self._log = connection, key, log
        if four_eyes and not self.wants_four_eyes():
            with transaction(connection, durable=True):
                log.append(STORE, "four_eyes", {})

    def wants_four_eyes(self) -> bool:
        """Return whether two people must approve each plan of this store.

        Raises:
            NotApprovedError: "tampered".
        """
        return bool(self._log.find(STORE, "four_eyes"))

    def register(self, name: str) -> None:
        """Register a person, under seal.

        Raises:
            NotApprovedError: "nameless" or "self_approval".
        """
        require_eligible(name)
        with transaction(self._connection, durable=True):
            self._connection.execute(
                "INSERT OR REPLACE INTO reviewers VALUES (?, ?)", (name, seal(self._key, "reviewer", name))
            )

    def require_registered(self, name: str) -> None:
        """Refuse a name that nobody registered with this store's key.

        Raises:
            NotApprovedError: "unregistered".
        """
        row = self._connection.execute("SELECT seal FROM reviewers WHERE name = ?", (name,)).fetchone()
        sealed = None if row is None else row[0]
        if name not in (SIMULATED, TERMINAL) and not is_sealed(self._key, "reviewer", name, sealed):
            refuse("unregistered", f"nobody registered the reviewer {name!r}")

    def note_asked(self, thread: str, interrupt_id: str, digest: str, name: str) -> None:
        """Log that a person is asked, once per request: from here on the thread is ruled by people."""
        with transaction(self._connection):
            asked = [entry.body["interrupt_id"] for entry in self._log.find(thread, "asked")]
            if interrupt_id not in asked:
                body = {"digest": digest, "interrupt_id": interrupt_id, "reviewer": name}
                self._log.append(thread, "asked", body)

    def note_seated(self, thread: str, seat: str, name: str) -> None:
        """Log that a person plays a seat of a thread, once: they cannot rule on its plans."""
        body = {"reviewer": name, "seat": seat}
        with transaction(self._connection, durable=True):
            if body not in [entry.body for entry in self._log.find(thread, "seated")]:
                self._log.append(thread, "seated", body)

    def awaits_person(self, thread: str) -> bool:
        """Return whether people rule in this thread: one was asked, or four eyes are wanted.

        Raises:
            NotApprovedError: "tampered".
        """
        return self.wants_four_eyes() or bool(self._log.find(thread, "asked"))

    def list_awaiting(self) -> list[str]:
        """Return the threads in which a person was asked and whose case is not closed."""
        rows = self._connection.execute(
            "SELECT DISTINCT thread FROM decision_log WHERE kind = 'asked'"
            " AND thread NOT IN (SELECT thread FROM decision_log WHERE kind = 'closed') ORDER BY thread"
        )
        return [str(thread) for (thread,) in rows.fetchall()]

    def require_may_rule(self, name: str, proposal: Proposal) -> None:
        """Refuse a reviewer that may not rule on this proposal.

        Raises:
            NotApprovedError: "nameless", "self_approval", or "awaits_person" where the simulated reviewer
                rules in a thread in which a person was asked.
        """
        require_eligible(name, proposal)
        seated = self._log.find(proposal.thread, "seated")
        if _fold(name) in [_fold(str(entry.body["reviewer"])) for entry in seated]:
            refuse("self_approval", f"{name} plays a seat of the case and cannot approve its plan")
        if name == SIMULATED and self.awaits_person(proposal.thread):
            refuse("awaits_person", "people rule in this thread: the simulated reviewer cannot")

    def keep_first(self, record: ApprovalRecord) -> bool:
        """Keep an approval that waits for a second one; return whether it does.

        Raises:
            NotApprovedError: see `require_second`.
        """
        if record.decision != "approve" or not self.wants_four_eyes():
            return False
        added = self._connection.execute(
            "INSERT OR IGNORE INTO first_approvals VALUES (?, ?)",
            (record.interrupt_id, canonical_json(record.model_dump())),
        )
        if added.rowcount == 0:
            self.require_second(record)
        return added.rowcount == 1

    def find_first(self, interrupt_id: str) -> str | None:
        """Return who gave the first of two approvals of a request; None while nobody did."""
        row = self._connection.execute(
            "SELECT record FROM first_approvals WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        record = None if row is None else read_json(row[0])
        return str(record.get("reviewer", "")) if isinstance(record, dict) else None

    def require_second(self, record: ApprovalRecord) -> None:
        """Refuse an approval that no other reviewer gave before, where four eyes are wanted.

        Raises:
            NotApprovedError: "one_pair_of_eyes", or why the first approval does not hold.
        """
        if not self.wants_four_eyes():
            return
        row = self._connection.execute(
            "SELECT record FROM first_approvals WHERE interrupt_id = ?", (record.interrupt_id,)
        ).fetchone()
        first = verify_approval(
            None if row is None else read_json(row[0]),
            key=self._key,
            thread=record.thread,
            interrupt_id=record.interrupt_id,
            digest=record.proposal_digest,
            now_s=self._log.now(),
        )
        if first.decision != "approve" or _fold(first.reviewer) == _fold(record.reviewer):
            refuse("one_pair_of_eyes", "a second reviewer must approve the proposal")


def require_eligible(name: str, proposal: Proposal | None = None) -> None:
    """Refuse a blank name, one with characters that cannot be seen, and that of a seat or one that looks so.

    Raises:
        NotApprovedError: "nameless" or "self_approval".
    """
    if not name.strip() or name != name.strip() or not name.isprintable() or INVISIBLE.search(name):
        refuse("nameless", f"{name!r} is no reviewer's name")
    seats = {*SPECIALISTS, RECONCILER}
    if proposal is not None:
        seats |= {proposal.accountable, *(part.role for part in proposal.parts)}
    if _fold(name) in map(_fold, seats):
        refuse("self_approval", f"{name} is a seat of the case and cannot approve its plan")


def _fold(name: str) -> str:
    """Return the name as it is compared: small, without accents, lookalikes as the Latin letters."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in plain if not unicodedata.combining(c)).translate(LOOKALIKES)
