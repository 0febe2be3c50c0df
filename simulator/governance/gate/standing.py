"""Folds the verified entries of a case's decision log, in memory, into the state of the case.

Rulings, the plan in force, what was carried out, how often it was planned anew and the close are read here,
and neither from the graph's state nor from other tables.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

from typing_extensions import TypedDict

from roles.team import NO_OPTION
from simulator.governance.gate.approvals import refuse
from simulator.governance.store.decision_log import Entry

Ruled = Literal["approve", "edit", "reject", "refused"]
RULINGS: dict[str, Ruled] = {
    "approved": "approve",
    "edited": "edit",
    "rejected": "reject",
    "refused": "refused",
}


class Settled(TypedDict):
    """The ruling on a request, as JSON.

    Example: {"ruling": "refused", "reason": "expired", "option": None, "feedback": ""}
    """

    ruling: Ruled
    reason: str  # of a refusal, one word; "" otherwise
    option: str | None  # the reviewer's own, after an edit
    feedback: str


class Standing:
    """The state of one case by its log. Example: Standing("t1", log.read("t1")).attempt == 0"""

    def __init__(self, thread: str, entries: Sequence[Entry]) -> None:
        self.thread, self._entries = thread, entries

    def find(self, *kinds: str) -> list[Entry]:
        """Return the entries of these kinds, in order."""
        return [entry for entry in self._entries if entry.kind in kinds]

    def _find_of(self, digest: str, kind: str) -> list[Entry]:
        return [entry for entry in self._entries if entry.kind == kind and entry.body["digest"] == digest]

    @property
    def seats(self) -> list[str]:
        """The seats of the case, as it was opened."""
        return [seat for entry in self.find("opened") for seat in entry.body["seats"]]

    @property
    def status(self) -> str | None:
        """The status with which the case was closed; None while it is open."""
        return next((str(entry.body["status"]) for entry in self.find("closed")), None)

    def require_unclosed(self) -> None:
        """Refuse where the case is closed.

        Raises:
            NotApprovedError: "closed".
        """
        if self.status is not None:
            refuse("closed", f"the case of thread {self.thread!r} is closed")

    def require_latest(self) -> Entry:
        """Return the latest request.

        Raises:
            NotApprovedError: "never_displayed".
        """
        requested = self.find("requested")
        if not requested:
            refuse("never_displayed", f"nothing was ever displayed in thread {self.thread!r}")
        return requested[-1]

    def find_shown(self, interrupt_id: str) -> Entry | None:
        """Return the request that was displayed under this interrupt."""
        shown = [one for one in self.find("requested") if one.body["interrupt_id"] == interrupt_id]
        return shown[0] if shown else None

    def find_ruling(self, interrupt_id: str) -> Entry | None:
        """Return the latest ruling on the request, a refusal included."""
        ruled = [one for one in self.find(*RULINGS) if one.body.get("interrupt_id") == interrupt_id]
        return ruled[-1] if ruled else None

    def find_settled(self, interrupt_id: str) -> Settled | None:
        """Return the ruling on the request; None while there is none."""
        ruled = self.find_ruling(interrupt_id)
        if ruled is None:
            return None
        return Settled(
            ruling=RULINGS[ruled.kind],
            reason=ruled.body.get("reason", ""),
            option=ruled.body.get("to"),
            feedback=ruled.body.get("feedback", ""),
        )

    def list_answers(self, interrupt_id: str) -> list[dict[str, Any]]:
        """Return the signed answers to the request that the desk keeps, in order."""
        return [
            one.body["record"] for one in self.find("answered") if one.body["interrupt_id"] == interrupt_id
        ]

    def list_used(self) -> Iterator[str]:
        """Yield the nonces of all rulings."""
        return (str(one.body["nonce"]) for one in self.find("approved", "edited", "rejected"))

    @property
    def refusal(self) -> str:
        """Why the latest answer did not count; "" where it did, or where there was none."""
        ruled = self.find(*RULINGS)
        return str(ruled[-1].body["reason"]) if ruled and ruled[-1].kind == "refused" else ""

    @property
    def attempt(self) -> int:
        """The number of re-plans of the case."""
        return len(self.find("replanned"))

    @property
    def revision(self) -> int:
        """The number of proposals that people edited or sent back."""
        return len(self.find("edited", "rejected"))

    @property
    def edited(self) -> str | None:
        """The reviewer's own option, where that is to be proposed next."""
        last = self.find("edited", "rejected", "replanned")[-1:]
        return next((cast(str, one.body["to"]) for one in last if one.kind == "edited"), None)

    @property
    def ruled_out(self) -> dict[str, str]:
        """Option -> why the reviewer took it out of the case."""
        options = [one.body["option"] for one in self.find("rejected")]
        return {option: "the reviewer rejected it" for option in options if option != NO_OPTION}

    @property
    def in_force(self) -> Entry | None:
        """The commit of the plan in force: the last one, unless it was planned anew."""
        last = self.find("committed", "replanned")[-1:]
        return next((one for one in last if one.kind == "committed"), None)

    def is_in_force(self, digest: str) -> bool:
        """Return whether this is the plan in force."""
        return self.in_force is not None and self.in_force.body["digest"] == digest

    def has_replanned(self, digest: str) -> bool:
        """Return whether this plan was planned anew."""
        return bool(self._find_of(digest, "replanned"))

    def list_executed(self, digest: str) -> list[str]:
        """Return the seats whose parts of this plan were carried out, in order."""
        return [str(entry.body["role"]) for entry in self._find_of(digest, "executed")]

    def find_observed(self, digest: str) -> dict[str, Any] | None:
        """Return what was observed of this plan; None while nothing was."""
        return next((entry.body for entry in self._find_of(digest, "observed")), None)
