"""Rules of who may rule: registered people or the simulated reviewer, never who plays a seat of the case."""

import re
from collections.abc import Iterable

from roles.registry import ROLES
from roles.team import TEAM_ROLES
from simulator.governance.gate.approvals import Proposal, refuse
from simulator.governance.gate.standing import Standing
from simulator.governance.store.database import Store, transaction
from simulator.governance.store.decision_log import DecisionLog

STORE = ""  # stands for the whole store where the decision log names threads
SIMULATED, TERMINAL = "simulated", "terminal"  # registered in every store
WEB = "web"  # stands for all who review in the browser; each signs under a registered name
NAME = re.compile(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*")
MAX_NAME_CHARS = 100
LOOKALIKES = (("rn", "m"), ("vv", "w"), ("i", "l"), ("1", "l"), ("0", "o"))


class Reviewers:
    """Registered reviewers of one store, and the cases in which a person was asked: entries of the log.

    With `four_eyes` an approval counts only after a first one of the same request by another reviewer, and
    both are people. A store that was once opened with it keeps it.
    """

    def __init__(self, connection: Store, *, log: DecisionLog, four_eyes: bool = False) -> None:
        self._connection, self._log = connection, log
        if four_eyes and not self.wants_four_eyes():
            with transaction(connection, durable=True):
                log.append(STORE, "four_eyes", {})

    def wants_four_eyes(self) -> bool:
        """Return whether two people must approve each plan of this store."""
        return bool(self._log.find(STORE, "four_eyes"))

    def list_registered(self) -> list[str]:
        """Return the people who are registered, in order."""
        names: dict[str, None] = {}
        for entry in self._log.find(STORE, "registered", "removed"):
            name = str(entry.body["reviewer"])
            names.setdefault(name) if entry.kind == "registered" else names.pop(name, None)
        return list(names)

    def register(self, name: str) -> None:
        """Register a person.

        Raises:
            NotApprovedError: "nameless", "self_approval", or "lookalike" of somebody who is registered.
        """
        require_name(name)
        with transaction(self._connection, durable=True):
            known = self.list_registered()
            if name in known:
                return
            if fold_name(name) in map(fold_name, known):
                refuse("lookalike", f"{name} looks like a reviewer who is registered")
            self._log.append(STORE, "registered", {"reviewer": name})

    def remove(self, name: str) -> None:
        """Take a person's registration back: approvals of theirs that were not used do not count any more."""
        with transaction(self._connection, durable=True):
            if name in self.list_registered():
                self._log.append(STORE, "removed", {"reviewer": name})

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
        """Return whether people rule in this thread: one was asked, or four eyes are wanted."""
        return self.wants_four_eyes() or bool(self._log.find(thread, "asked"))

    def require_may_rule(self, name: str, standing: Standing, proposal: Proposal) -> None:
        """Refuse a reviewer that may not rule on this proposal.

        Raises:
            NotApprovedError: "nameless", "unregistered", "self_approval", or "awaits_person" where the
                simulated reviewer rules in a thread in which a person was asked.
        """
        if name not in (SIMULATED, TERMINAL):
            require_name(name)
            if name not in self.list_registered():
                refuse("unregistered", f"nobody registered the reviewer {name!r}")
        parts = [part.role for part in proposal.parts]
        seats = [*standing.seats, *proposal.reports, proposal.accountable, *parts]
        people = [str(entry.body["reviewer"]) for entry in standing.find("seated")]
        if fold_name(name) in map(fold_name, [*seats, *people]):
            refuse("self_approval", f"{name} plays a seat of the case and cannot rule on its plan")
        if name == SIMULATED and self.awaits_person(standing.thread):
            refuse("awaits_person", "people rule in this thread: the simulated reviewer cannot")

    def require_eyes(self, names: Iterable[str]) -> None:
        """Refuse the approvals of one person where four eyes are wanted.

        Raises:
            NotApprovedError: "one_pair_of_eyes".
        """
        if self.wants_four_eyes() and len(set(map(fold_name, names))) < 2:
            refuse("one_pair_of_eyes", "a second reviewer must approve the proposal")


def require_name(name: str) -> None:
    """Refuse what is no name of ASCII letters and digits, or looks like that of a seat or of our own.

    Raises:
        NotApprovedError: "nameless" or "self_approval".
    """
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        refuse("nameless", f"{name!r} is no name: use ASCII letters and digits, one hyphen or space between")
    own = [SIMULATED, TERMINAL, WEB, "absent", "ReconcileGPT", *TEAM_ROLES]
    titles = [role.title for role in ROLES.values()]
    if fold_name(name) in map(fold_name, [*own, *titles]):
        refuse("self_approval", f"{name} is the name of a seat, or of a reviewer that is no person")


def fold_name(name: str) -> str:
    """Return the name as it is compared: small, without separators, lookalikes as one letter."""
    plain = re.sub(r"[\W_]", "", name.casefold())
    for seen, meant in LOOKALIKES:
        plain = plain.replace(seen, meant)
    return plain
