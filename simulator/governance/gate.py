"""The human gate: what was displayed, ruled, committed and carried out, and who may rule.

Everything that decides is a fold over the case's verified entries of the decision log (`Standing`), which
only the key's holder can write. Nothing that the graph's state says is believed: the digest is computed
again from the proposal. A reviewer's answer is an entry of the log, too; it is not handed to the gate by
anybody.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from roles.registry import ROLES
from roles.team import NO_OPTION, TEAM_ROLES
from simulator.governance.log import DecisionLog, Entry
from simulator.governance.proposal import PlanPart, Proposal, ReviewRequest, ReviewResponse, Ruling
from simulator.governance.seals import NotApprovedError, digest_json, refuse

if TYPE_CHECKING:
    from simulator.governance.reviewers import Reviewer

MAX_REPLANS = 3
LIFETIME_S, MAX_LIFETIME_S = 24 * 3600, 7 * 24 * 3600  # of an approval that is not committed
STORE = ""  # stands for the whole store where the decision log names threads
SIMULATED, TERMINAL = "simulated", "terminal"  # registered in every store
WEB = "web"  # stands for all who review in the browser; each signs under a registered name
NAME = re.compile(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*")
MAX_NAME_CHARS = 100
LOOKALIKES = (("rn", "m"), ("vv", "w"), ("i", "l"), ("1", "l"), ("0", "o"))
Ruled = Literal["approve", "edit", "reject", "refused"]
_KINDS: Mapping[Ruling, Literal["approved", "edited", "rejected"]] = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
}


class Settled(TypedDict):
    """The ruling on a request.

    Example: {"ruling": "refused", "reason": "expired", "option": None, "feedback": ""}
    """

    ruling: Ruled
    reason: str  # of a refusal, one word; "" otherwise
    option: str | None  # the reviewer's own, after an edit
    feedback: str


class Standing:
    """The state of one case by its log. Example: Standing("t1", log.read("t1")).attempt == 0"""

    def __init__(self, thread: str, entries: Sequence[Entry], *, num_eyes: int = 1) -> None:
        """`num_eyes`: approvals that a plan needs."""
        self.thread, self._entries, self._num_eyes = thread, list(entries), num_eyes
        self._by_kind: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            self._by_kind[entry.kind].append(entry)

    def find(self, *kinds: str) -> list[Entry]:
        """Return the entries of these kinds, in order."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        return [entry for entry in self._entries if entry.kind in kinds]

    def _find_of(self, digest: str, kind: str) -> list[Entry]:
        return [entry for entry in self.find(kind) if entry.body["digest"] == digest]

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
        if not self.find("requested"):
            refuse("never_displayed", f"nothing was ever displayed in thread {self.thread!r}")
        return self.find("requested")[-1]

    def find_shown(self, interrupt_id: str) -> Entry | None:
        """Return the request of this name."""
        shown = [one for one in self.find("requested") if one.body["interrupt_id"] == interrupt_id]
        return shown[0] if shown else None

    def find_nth(self, number: int) -> ReviewRequest | None:
        """Return the request of this number, from 0; None without one."""
        shown = self.find("requested")
        return read_request(shown[number]) if 0 <= number < len(shown) else None

    def find_refused(self) -> ReviewRequest | None:
        """Return the latest request, where its answer did not count and it is to be displayed once more."""
        for latest in self.find("requested")[-1:]:
            settled = self.find_settled(latest.body["interrupt_id"])
            if settled is not None and settled["ruling"] == "refused":
                return read_request(latest)
        return None

    def find_proposal(self, digest: str) -> Proposal:
        """Return the displayed proposal of this digest."""
        return read_request(self._find_of(digest, "requested")[0]).proposal

    def list_answers(self, interrupt_id: str) -> list[Entry]:
        """Return the answers to the request, in order; a first of two approvals too."""
        answers = self.find(*_KINDS.values())
        return [one for one in answers if one.body["interrupt_id"] == interrupt_id]

    def find_answer(self, interrupt_id: str) -> Entry | None:
        """Return the answer with which there are enough; None where there is none yet."""
        answers = self.list_answers(interrupt_id)
        is_enough = len(answers) >= self._num_eyes or self.is_committed(interrupt_id)
        return answers[-1] if answers and (is_enough or answers[-1].kind != "approved") else None

    def find_settled(self, interrupt_id: str) -> Settled | None:
        """Return the ruling on the request; None while there is none."""
        refused = [one for one in self.find("refused") if one.body.get("interrupt_id") == interrupt_id]
        if refused:
            return Settled(ruling="refused", reason=refused[-1].body["reason"], option=None, feedback="")
        answer = self.find_answer(interrupt_id)
        if answer is None:
            return None
        ruling = next(name for name, kind in _KINDS.items() if kind == answer.kind)
        return Settled(ruling=ruling, reason="", option=answer.body["to"], feedback=answer.body["feedback"])

    @property
    def refusal(self) -> str:
        """Why the latest answer did not count; "" where it did, or where there was none."""
        ruled = self.find("refused", *_KINDS.values())
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
        return next((str(one.body["to"]) for one in last if one.kind == "edited"), None)

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

    def is_committed(self, interrupt_id: str) -> bool:
        """Return whether the plan of this request was committed."""
        return any(one.body["interrupt_id"] == interrupt_id for one in self.find("committed"))

    def list_executed(self, digest: str) -> list[str]:
        """Return the seats whose parts of this plan were carried out, in order."""
        return [str(entry.body["role"]) for entry in self._find_of(digest, "executed")]

    def find_observed(self, digest: str) -> dict[str, Any] | None:
        """Return what was observed of this plan; None while nothing was."""
        return next((entry.body for entry in self._find_of(digest, "observed")), None)


class Reviewers:
    """Registered reviewers of one store, and the cases in which a person was asked: entries of the log.

    With `four_eyes` an approval counts only after a first one of the same request by another reviewer, and
    both are people. A store that was once opened with it keeps it.
    """

    def __init__(self, log: DecisionLog, *, four_eyes: bool = False) -> None:
        self._log = log
        if four_eyes and not self.wants_four_eyes():
            log.append(STORE, "four_eyes", {}, durable=True)

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
        with self._log.transaction(durable=True):
            known = self.list_registered()
            if name in known:
                return
            if fold_name(name) in map(fold_name, known):
                refuse("lookalike", f"{name} looks like a reviewer who is registered")
            self._log.append(STORE, "registered", {"reviewer": name})

    def remove(self, name: str) -> None:
        """Take a person's registration back: approvals of theirs that were not used do not count any more.

        Raises:
            NotApprovedError: "unregistered".
        """
        with self._log.transaction(durable=True):
            if name not in self.list_registered():
                refuse("unregistered", f"nobody registered the reviewer {name!r}")
            self._log.append(STORE, "removed", {"reviewer": name})

    def note_asked(self, request: ReviewRequest, name: str) -> None:
        """Log that a person is asked, once per request: from here on the thread is ruled by people."""
        with self._log.transaction():
            asked = [entry.body["interrupt_id"] for entry in self._log.find(request.thread, "asked")]
            if request.interrupt_id not in asked:
                told = {"digest": request.digest, "interrupt_id": request.interrupt_id, "reviewer": name}
                self._log.append(request.thread, "asked", told)

    def note_seated(self, thread: str, seat: str, name: str) -> None:
        """Log that a person plays a seat of a thread, once: they cannot rule on its plans."""
        body = {"reviewer": name, "seat": seat}
        with self._log.transaction(durable=True):
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


class Gate:
    """Requests, commits and everything that is done under a commit, in one store."""

    def __init__(self, log: DecisionLog, reviewers: Reviewers) -> None:
        self._log, self._reviewers = log, reviewers

    def stand(self, thread: str) -> Standing:
        """Return how a case stands.

        Raises:
            NotApprovedError: "tampered".
        """
        num_eyes = 2 if self._reviewers.wants_four_eyes() else 1
        return Standing(thread, self._log.read(thread), num_eyes=num_eyes)

    def find_standing(self, interrupt_id: str) -> Standing | None:
        """Return how the case stands in which this request was displayed; None where none was."""
        self._log.catch_up()
        thread = self._log.requests.get(interrupt_id)
        return None if thread is None else self.stand(thread)

    def open_case(self, thread: str, case_key: str, horizon: int, seats: Sequence[str]) -> int:
        """Open a thread at this number of closed cases; return the one that it was opened at first.

        Raises:
            ValueError: the thread is another case's.
        """
        with self._log.transaction():
            opened = self.stand(thread).find("opened")
            if not opened:
                body = {"case": case_key, "horizon": horizon, "seats": list(seats)}
                self._log.append(thread, "opened", body)
                return horizon
        if opened[0].body["case"] != case_key:
            raise ValueError(f"thread {thread!r} is of case {opened[0].body['case']!r}, not {case_key!r}")
        return int(opened[0].body["horizon"])

    def show(self, proposal: Proposal, number: int) -> tuple[ReviewRequest, int]:
        """Display the proposal; return its request and the number of that.

        `number`: of requests before it; one that another process has displayed meanwhile is returned.

        Raises:
            NotApprovedError: "closed".
        """
        with self._log.transaction():
            standing = self.stand(proposal.thread)
            if (known := standing.find_nth(number)) is not None:
                return known, number
            standing.require_unclosed()
            number = len(standing.find("requested"))
            request = ReviewRequest(
                thread=proposal.thread,
                interrupt_id=digest_json([proposal.thread, number, proposal.digest])[:32],
                digest=proposal.digest,
                proposal=proposal,
                refusal=standing.refusal,
            )
            told = {"option": proposal.option, "risk_score": proposal.risk_score}
            names = {"digest": request.digest, "interrupt_id": request.interrupt_id}
            self._log.append(proposal.thread, "requested", {**names, **told, "request": request.model_dump()})
            return request, number

    def commit(self, proposal: Proposal) -> str:
        """Permit exactly this proposal to be carried out, or refuse it; return "" or the reason.

        It must be the latest that was displayed, and approved. A plan that was committed is committed.
        A refusal is logged in the same transaction, and it is final for a request that was approved.
        """
        with self._log.transaction(durable=True):
            standing = self.stand(proposal.thread)
            refused: dict[str, Any] = {"digest": proposal.digest}
            try:
                if any(one.body["digest"] == proposal.digest for one in standing.find("committed")):
                    return ""
                standing.require_unclosed()
                latest = standing.require_latest().body
                if latest["digest"] != proposal.digest:
                    refuse("other_proposal", "the latest request displayed another proposal")
                settled = standing.find_settled(latest["interrupt_id"])
                if settled is None or settled["ruling"] != "approve":
                    refuse("settled", "the request is not approved")
                refused["interrupt_id"] = latest["interrupt_id"]
                answers = standing.list_answers(latest["interrupt_id"])
                self._require_approvers(standing, proposal, answers)
                if proposal.attempt != standing.attempt or standing.in_force is not None:
                    refuse("committed", f"attempt {proposal.attempt} is not to be committed now")
                told = {"option": proposal.option, "attempt": proposal.attempt}
                reviewer = answers[-1].body["reviewer"]
                self._log.append(proposal.thread, "committed", {**refused, **told, "reviewer": reviewer})
            except NotApprovedError as error:
                self._log.append(proposal.thread, "refused", {**refused, "reason": error.reason})
                return error.reason
            return ""

    def _require_approvers(self, standing: Standing, proposal: Proposal, answers: Sequence[Entry]) -> None:
        """Refuse unless every approval of the request holds now, of people who may rule on it now."""
        for one in answers:
            if self._log.now() >= one.body["expires_at_s"]:
                refuse("expired", "the approval has expired")
            self._reviewers.require_may_rule(one.body["reviewer"], standing, proposal)
        self._reviewers.require_eyes([one.body["reviewer"] for one in answers])

    def require_in_force(self, proposal: Proposal) -> Standing:
        """Return how the case stands, if exactly this proposal is the plan in force and the case is open.

        Raises:
            NotApprovedError: "not_committed", "superseded" or "closed".
        """
        standing = self.stand(proposal.thread)
        if not any(one.body["digest"] == proposal.digest for one in standing.find("committed")):
            refuse("not_committed", f"the proposal of thread {proposal.thread!r} was never committed")
        if not standing.is_in_force(proposal.digest):
            refuse("superseded", "a later plan is in force, or the case is planned anew")
        standing.require_unclosed()
        return standing

    def deliver(self, proposal: Proposal, part: PlanPart) -> None:
        """Carry out one part of the plan in force; a part that was carried out is not carried out again.

        Raises:
            NotApprovedError: not in force, not a part of it, or the case is closed.
        """
        with self._log.transaction():
            if part not in proposal.parts:
                refuse("no_part", f"{part.role} has no such part in the proposal")
            if part.role not in self.stand(proposal.thread).list_executed(proposal.digest):
                self.require_in_force(proposal)
                body = {"digest": proposal.digest, "role": part.role, "action": part.action}
                self._log.append(proposal.thread, "executed", body)

    def observe(self, proposal: Proposal, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was observed of a plan; log it when the plan in force is looked at first.

        Raises:
            NotApprovedError: not in force, closed, or "not_executed".
        """
        with self._log.transaction():
            known = self.stand(proposal.thread).find_observed(proposal.digest)
            if known is not None:
                return known
            done = self.require_in_force(proposal).list_executed(proposal.digest)
            if set(done) != {part.role for part in proposal.parts}:
                refuse("not_executed", "parts of the plan were not carried out")
            body = {"digest": proposal.digest, **look()}
            self._log.append(proposal.thread, "observed", body)
            return body

    def replan(self, proposal: Proposal, told: dict[str, Any]) -> None:
        """Open the case again, once, after an alert on the plan in force.

        Raises:
            NotApprovedError: not in force, closed, "no_alert" or "no_replan_left".
        """
        with self._log.transaction():
            replanned = self.stand(proposal.thread).find("replanned")
            if proposal.digest in [one.body["digest"] for one in replanned]:
                return
            standing = self.require_in_force(proposal)
            if not (standing.find_observed(proposal.digest) or {}).get("alerts"):
                refuse("no_alert", "monitoring raised no alert on the plan in force")
            if standing.attempt >= MAX_REPLANS:
                refuse("no_replan_left", f"the case was planned anew {MAX_REPLANS} times")
            self._log.append(proposal.thread, "replanned", {"digest": proposal.digest, **told})

    def close(self, proposal: Proposal, told: Callable[[str, Standing], dict[str, Any]]) -> str:
        """Close the case over the latest displayed plan; return its status, of a closed one the one it has.

        completed, completed_with_alerts, handed_over (in force, but no part to do) or not_approved. `told`:
        what the entry holds of the case beside its status, by status and standing.

        Raises:
            NotApprovedError: "superseded" by a later plan, or "waits" for a ruling.
        """
        with self._log.transaction():
            standing = self.stand(proposal.thread)
            if standing.status is not None:
                return standing.status
            latest = standing.require_latest().body
            if latest["digest"] != proposal.digest:
                refuse("superseded", "a case is closed with the plan that was displayed last")
            if standing.find_settled(latest["interrupt_id"]) is None:
                refuse("waits", "the case waits for a ruling on its latest plan")
            status = _find_status(standing, proposal)
            body = {"digest": proposal.digest, "status": status, **told(status, standing)}
            self._log.append(proposal.thread, "closed", body)
            return status

    def read_status(self, thread: str) -> str:
        """Return the status with which the case was closed.

        Raises:
            NotApprovedError: "tampered": it was not closed, or the log was changed.
        """
        status = self.stand(thread).status
        if status is None:
            refuse("tampered", f"thread {thread!r} has ended, but its case was never closed")
        return status


def _find_status(standing: Standing, proposal: Proposal) -> str:
    """Return the status of a case that ends with this plan. See `Gate.close`."""
    done = set(standing.list_executed(proposal.digest)) == {part.role for part in proposal.parts}
    if not standing.is_in_force(proposal.digest) or not done:
        return "not_approved"
    if not proposal.parts:
        return "handed_over"
    observed = standing.find_observed(proposal.digest)
    return "completed_with_alerts" if observed is None or observed["alerts"] else "completed"


def read_request(entry: Entry) -> ReviewRequest:
    """Return the request of a `requested` entry."""
    return ReviewRequest.model_validate(entry.body["request"])


class ReviewDesk:
    """Takes reviewers' answers to open requests; a waiting case goes on when it is played again.

    A web reviewer lists the open requests, shows one, and submits an answer to the digest that was shown.
    """

    def __init__(
        self, log: DecisionLog, gate: Gate, reviewers: Reviewers, *, lifetime_s: int = LIFETIME_S
    ) -> None:
        """
        Raises:
            ValueError: lifetime_s outside 1 to MAX_LIFETIME_S.
        """
        if not 1 <= lifetime_s <= MAX_LIFETIME_S:
            raise ValueError(f"lifetime_s must be 1 to {MAX_LIFETIME_S}, got {lifetime_s}")
        self._log, self._gate, self.reviewers, self._lifetime_s = log, gate, reviewers, lifetime_s

    def list_threads(self) -> list[str]:
        """Return the threads that displayed something and are not closed, in order."""
        self._log.catch_up()
        return list(self._log.open_threads)

    def list_requests(self) -> list[str]:
        """Return the names of all requests, the newest first."""
        self._log.catch_up()
        return list(reversed(self._log.requests))

    def list_open(self) -> list[ReviewRequest]:
        """List the requests that can be answered: none that was settled, answered, superseded or closed."""
        found = [self.find_open(thread) for thread in self.list_threads()]
        return [request for request in found if request is not None]

    def find_open(self, thread: str) -> ReviewRequest | None:
        """Return the request of this thread that can be answered; None where none can."""
        try:
            return self._require_open(str(self._gate.stand(thread).require_latest().body["interrupt_id"]))[0]
        except NotApprovedError:
            return None

    def find_request(self, interrupt_id: str) -> ReviewRequest | None:
        """Return the request as it was displayed; None where there is none."""
        standing = self._gate.find_standing(interrupt_id)
        shown = None if standing is None else standing.find_shown(interrupt_id)
        return None if shown is None else read_request(shown)

    def find_answer(self, interrupt_id: str) -> Entry | None:
        """Return the answer to the request; None while there is none, or only a first of two approvals."""
        standing = self._gate.find_standing(interrupt_id)
        return None if standing is None else standing.find_answer(interrupt_id)

    def find_first(self, interrupt_id: str) -> str | None:
        """Return who gave the first of two approvals of a request; None while nobody did."""
        standing = self._gate.find_standing(interrupt_id)
        answers = [] if standing is None else standing.list_answers(interrupt_id)
        return str(answers[0].body["reviewer"]) if answers else None

    def submit(self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str) -> Entry:
        """Keep the answer to a request, on disk when this returns; the first answer stays.

        Where four eyes are wanted, the request stays open after a first approval.

        Raises:
            NotApprovedError: "unknown", "tampered", "closed", "superseded", "settled", "unregistered",
                "self_approval", "awaits_person" or "one_pair_of_eyes" (see `Reviewers`), "other_proposal"
                where the digest shown is not the displayed one, or "unknown_option", "cannot_be_run" of an
                edit.
        """
        if reviewer in (SIMULATED, TERMINAL):
            refuse("unregistered", f"{reviewer!r} answers where a case is played; give a registered name")
        entry = self._keep(interrupt_id, digest_shown, response, reviewer)
        self._log.commit_now()
        return entry

    def _require_open(self, interrupt_id: str) -> tuple[ReviewRequest, Standing]:
        standing = self._gate.find_standing(interrupt_id)
        shown = None if standing is None else standing.find_shown(interrupt_id)
        if standing is None or shown is None:
            refuse("unknown", "there is no such request")
        standing.require_unclosed()
        if standing.require_latest() is not shown:
            refuse("superseded", "a later request stands in this thread")
        settled = standing.find_settled(interrupt_id)
        if settled is not None:
            refuse("settled", f"the request was settled: {settled['ruling']} {settled['reason']}".strip())
        return read_request(shown), standing

    def _keep(self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str) -> Entry:
        with self._log.transaction(durable=True):
            request, standing = self._require_open(interrupt_id)
            if not digest_shown == request.digest == request.proposal.digest:
                refuse("other_proposal", "the proposal shown is not the one that was requested")
            self.reviewers.require_may_rule(reviewer, standing, request.proposal)
            before = [one.body["reviewer"] for one in standing.list_answers(interrupt_id)]
            if before and response.decision == "approve":
                self.reviewers.require_eyes([*before, reviewer])
            if response.option is not None:
                _require_option(response.option, request.proposal)
            body = {
                "digest": request.digest,
                "interrupt_id": interrupt_id,
                "option": request.proposal.option,
                "attempt": request.proposal.attempt,
                "reviewer": reviewer,
                "to": response.option,
                "feedback": response.feedback,
                "expires_at_s": int(self._log.now()) + self._lifetime_s,
            }
            return self._log.append(request.thread, _KINDS[response.decision], body)

    async def ask(self, request: ReviewRequest, reviewer: "Reviewer") -> Entry | None:
        """Return the kept answer, or ask the reviewer and keep the answer; None where there is none yet.

        The reviewer is shown the request of the log, not the copy that the graph carries. The simulated
        reviewer is not asked in a thread in which a person was.
        """
        try:
            if self.find_answer(request.interrupt_id) is None:
                await self._ask(self._require_open(request.interrupt_id)[0], reviewer)
        except NotApprovedError as error:  # it may have been answered elsewhere meanwhile
            if error.reason not in ("settled", "superseded", "closed", "one_pair_of_eyes"):
                raise
        return self.find_answer(request.interrupt_id)

    async def _ask(self, request: ReviewRequest, reviewer: "Reviewer") -> None:
        if reviewer.name != SIMULATED:
            self.reviewers.note_asked(request, reviewer.name)
            await self._log.committed()
        elif self.reviewers.awaits_person(request.thread):
            return
        response = await reviewer.review(request)
        if response is not None:
            self._keep(request.interrupt_id, request.digest, response, reviewer.name)
            await self._log.committed()


def _require_option(option: str, proposal: Proposal) -> None:
    """Refuse an option of a reviewer's own that cannot take the proposed one's place."""
    options = {NO_OPTION: True} | {one.option: one.worth is not None for one in proposal.options}
    if not options.get(option):
        refuse(
            "cannot_be_run" if option in options else "unknown_option",
            f"option {option!r} cannot take the place of {proposal.option!r}",
        )
