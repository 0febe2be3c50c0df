"""The human gate: what was displayed, ruled, committed and carried out, and who may rule.

Everything that decides is a fold over the case's verified entries of the decision log (`Standing`), which
only the key's holder can write. Nobody hands the gate a plan or an answer: it is given a thread and the
number of a display, and reads the rest in the log. To refuse is to raise NotApprovedError, for the reason in
quotes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from roles.registry import ROLES
from roles.team import NO_OPTION, TEAM_ROLES
from simulator.governance.log import DecisionLog, Entry, EntryKind
from simulator.governance.proposal import Proposal, ReviewRequest, ReviewResponse, Ruling
from simulator.governance.seals import NotApprovedError, digest_json, refuse

if TYPE_CHECKING:
    from simulator.governance.reviewers import Reviewer

MAX_REPLANS = 3
LIFETIME_S = 24 * 3600  # of an approval that is not committed
STORE = ""  # stands for the whole store where the decision log names threads
SIMULATED, TERMINAL = "simulated", "terminal"  # registered in every store
WEB = "web"  # stands for all who review in the browser; each signs under a registered name
NAME = re.compile(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*")
MAX_NAME_CHARS = 100
LOOKALIKES = (("rn", "m"), ("vv", "w"), ("i", "l"), ("1", "l"), ("0", "o"))
Ruled = Literal["approve", "edit", "reject", "refused", "waiting"]
_KINDS: Mapping[Ruling, EntryKind] = {"approve": "approved", "edit": "edited", "reject": "rejected"}
_RULINGS: Mapping[str, Ruling] = {kind: ruling for ruling, kind in _KINDS.items()}
_OF_DISPLAYS = (*_RULINGS, "refused", "committed", "executed", "observed", "replanned")


@dataclass(slots=True, kw_only=True)
class Display:
    """One display of a proposal to the reviewers, and what followed from it.

    Example: Display(entry=entry, number=0, num_eyes=1).ruling == "waiting"
    """

    entry: Entry  # of kind "requested"
    number: int  # of the case's displays before it
    num_eyes: int  # approvals that it needs
    answers: list[Entry] = field(default_factory=list)  # a first of two approvals too
    refusal: str = ""  # why its approval did not count, one word
    is_committed: bool = False
    executed: list[str] = field(default_factory=list)  # seats whose parts were carried out, in order
    observed: dict[str, Any] | None = None
    is_replanned: bool = False  # the case was planned anew after it

    @property
    def interrupt_id(self) -> str:
        """The request's name."""
        return str(self.entry.body["interrupt_id"])

    @property
    def digest(self) -> str:
        """The proposal's digest; the same proposal may be displayed again."""
        return str(self.entry.body["digest"])

    @property
    def request(self) -> ReviewRequest:
        """The request, as it was displayed."""
        return ReviewRequest.model_validate(self.entry.body["request"])

    @property
    def proposal(self) -> Proposal:
        """The proposal, as it was displayed."""
        return self.request.proposal

    @property
    def answer(self) -> Entry | None:
        """The answer that settles it; None where there is none yet, or only a first of two approvals."""
        is_enough = self.is_committed or len(self.answers) >= self.num_eyes
        last = self.answers[-1] if self.answers else None
        return last if last is not None and (is_enough or last.kind != "approved") else None

    @property
    def ruling(self) -> Ruled:
        """The ruling; "refused" where the approval did not count."""
        if self.refusal:
            return "refused"
        return "waiting" if self.answer is None else _RULINGS[self.answer.kind]

    @property
    def option(self) -> str | None:
        """The reviewer's own option, after an edit."""
        return None if self.answer is None else self.answer.body["to"]

    def follow(self, entry: Entry) -> None:
        """Take in an entry about it."""
        match entry.kind:
            case "approved" | "edited" | "rejected":
                self.answers.append(entry)
            case "refused":
                self.refusal = entry.body["reason"]
            case "committed":
                self.is_committed = True
            case "executed":
                self.executed.append(entry.body["role"])
            case "observed":
                self.observed = self.observed or entry.body
            case "replanned":
                self.is_replanned = True


class Standing:
    """The state of one case, folded from its entries. Example: Standing("t1", log.read("t1")).attempt == 0"""

    def __init__(self, thread: str, entries: Sequence[Entry], *, num_eyes: int = 1) -> None:
        """`num_eyes`: approvals that a plan needs."""
        self.thread = thread
        self.opened: Entry | None = None
        self.status: str | None = None  # with which the case was closed
        self.seated: list[str] = []  # people who play its seats
        self.displays: list[Display] = []
        for entry in entries:
            if entry.kind == "opened":
                self.opened = entry
            elif entry.kind == "closed":
                self.status = str(entry.body["status"])
            elif entry.kind == "seated":
                self.seated.append(entry.body["reviewer"])
            elif entry.kind == "requested":
                self.displays.append(Display(entry=entry, number=len(self.displays), num_eyes=num_eyes))
            elif entry.kind in _OF_DISPLAYS and (display := self._find_display(entry)) is not None:
                display.follow(entry)

    def _find_display(self, entry: Entry) -> Display | None:
        """Return the display that the entry is about: it names the request, or a committed plan."""
        for display in reversed(self.displays):
            name = entry.body.get("interrupt_id")
            is_plan = display.is_committed and display.digest == entry.body["digest"]
            if is_plan if name is None else display.interrupt_id == name:
                return display
        return None

    def at(self, num_displays: int) -> "Standing":
        """Return the state of the case before any later display than the first `num_displays`."""
        past = copy(self)
        past.displays = self.displays[: max(0, num_displays)]
        return past

    @property
    def latest(self) -> Display:
        """The latest display; refused where there is none: "never_displayed"."""
        if not self.displays:
            refuse("never_displayed", f"nothing was ever displayed in thread {self.thread!r}")
        return self.displays[-1]

    @property
    def open_display(self) -> Display | None:
        """The display that can be answered: the latest, while it waits and the case is not closed."""
        last = self.displays[-1] if self.displays else None
        return last if last is not None and self.status is None and last.ruling == "waiting" else None

    def find(self, interrupt_id: str) -> Display | None:
        """Return the display of this request; None where there is none."""
        return next((display for display in self.displays if display.interrupt_id == interrupt_id), None)

    def require_unclosed(self) -> None:
        """Refuse a closed case: "closed"."""
        if self.status is not None:
            refuse("closed", f"the case of thread {self.thread!r} is closed")

    def require_in_force(self, number: int) -> Display:
        """Return this display if its plan is in force; else "not_committed", "superseded" or "closed"."""
        display = self.displays[number]
        if not display.is_committed:
            refuse("not_committed", f"the proposal of thread {self.thread!r} was never committed")
        if display is not self.in_force:
            refuse("superseded", "a later plan is in force, or the case is planned anew")
        self.require_unclosed()
        return display

    @property
    def in_force(self) -> Display | None:
        """The display of the plan in force: the last one committed, unless it was planned anew."""
        last = next((display for display in reversed(self.displays) if display.is_committed), None)
        return None if last is None or last.is_replanned else last

    @property
    def attempt(self) -> int:
        """The number of re-plans of the case."""
        return sum(display.is_replanned for display in self.displays)

    @property
    def revision(self) -> int:
        """The number of proposals that people edited or sent back."""
        return sum(display.ruling in ("edit", "reject") for display in self.displays)

    @property
    def num_refused(self) -> int:
        """The number of displays whose approval did not count."""
        return sum(display.ruling == "refused" for display in self.displays)

    @property
    def edited(self) -> str | None:
        """The reviewer's own option, where that is to be proposed next."""
        last = next((display for display in reversed(self.displays) if display.ruling != "refused"), None)
        return None if last is None or last.ruling != "edit" else last.option

    @property
    def ruled_out(self) -> dict[str, str]:
        """Option -> why the reviewer took it out of the case."""
        rejected = [one.entry.body["option"] for one in self.displays if one.ruling == "reject"]
        return {option: "the reviewer rejected it" for option in rejected if option != NO_OPTION}


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
        """Take a registration back, or refuse: "unregistered". Approvals that were not used count no more."""
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
        seats = standing.opened.body["seats"] if standing.opened is not None else []
        own = [*seats, *proposal.reports, proposal.accountable, *parts, *standing.seated]
        if fold_name(name) in map(fold_name, own):
            refuse("self_approval", f"{name} plays a seat of the case and cannot rule on its plan")
        if name == SIMULATED and self.awaits_person(standing.thread):
            refuse("awaits_person", "people rule in this thread: the simulated reviewer cannot")

    def require_eyes(self, names: Iterable[str]) -> None:
        """Refuse approvals of one person where four eyes are wanted: "one_pair_of_eyes"."""
        if self.wants_four_eyes() and len(set(map(fold_name, names))) < 2:
            refuse("one_pair_of_eyes", "a second reviewer must approve the proposal")


def require_name(name: str) -> None:
    """Refuse what is no name ("nameless") or looks like a seat's or one of ours ("self_approval")."""
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
    """Requests, rulings, commits and everything that is done under a commit, in one store.

    A case is named by its thread, and what is displayed of it by the number of displays before. A web
    reviewer lists the open requests, shows one, and submits an answer to the digest that was shown.
    """

    def __init__(self, log: DecisionLog, reviewers: Reviewers) -> None:
        self._log, self._reviewers = log, reviewers

    def stand(self, thread: str) -> Standing:
        """Return how the case stands, by its verified entries (see `DecisionLog.read`)."""
        num_eyes = 2 if self._reviewers.wants_four_eyes() else 1
        return Standing(thread, self._log.read(thread), num_eyes=num_eyes)

    def open_case(self, thread: str, case_key: str, horizon: int, seats: Sequence[str]) -> int:
        """Open a thread of the case, once; return the number of closed cases that it was opened at."""
        with self._log.transaction():
            opened = self.stand(thread).opened
            if opened is None:
                body = {"case": case_key, "horizon": horizon, "seats": list(seats)}
                self._log.append(thread, "opened", body)
                return horizon
        if opened.body["case"] != case_key:
            raise ValueError(f"thread {thread!r} is of case {opened.body['case']!r}, not {case_key!r}")
        return int(opened.body["horizon"])

    def show(self, proposal: Proposal, number: int) -> None:
        """Display the proposal of an open case, unless another process displayed that number meanwhile."""
        thread, digest = proposal.thread, proposal.digest
        with self._log.transaction():
            standing = self.stand(thread)
            if number < len(standing.displays):
                return
            standing.require_unclosed()
            request = ReviewRequest(
                thread=thread,
                interrupt_id=digest_json([thread, len(standing.displays), digest])[:32],
                digest=digest,
                proposal=proposal,
                refusal=standing.displays[-1].refusal if standing.displays else "",
            )
            told = {"option": proposal.option, "risk_score": proposal.risk_score}
            body = {"digest": digest, "interrupt_id": request.interrupt_id, **told}
            self._log.append(thread, "requested", {**body, "request": request.model_dump()})

    def commit(self, thread: str, number: int) -> None:
        """Permit exactly the displayed proposal to be carried out, or log that its approval does not count.

        Such a refusal is logged in the same transaction, and final. A plan that was committed is committed.

        Raises:
            NotApprovedError: "superseded" by a later display, "settled" otherwise than by approval, "closed".
        """
        with self._log.transaction(durable=True):
            standing = self.stand(thread)
            display = standing.displays[number]
            if display.is_committed or display.refusal:
                return
            standing.require_unclosed()
            if display is not standing.latest:
                refuse("superseded", "a later request stands in this thread")
            if display.ruling != "approve":
                refuse("settled", "the request is not approved")
            proposal = display.proposal
            body: dict[str, Any] = {"digest": display.digest, "interrupt_id": display.interrupt_id}
            try:
                self._require_approvers(standing, display, proposal)
                if proposal.attempt != standing.attempt or standing.in_force is not None:
                    refuse("committed", f"attempt {proposal.attempt} is not to be committed now")
            except NotApprovedError as error:
                self._log.append(thread, "refused", {**body, "reason": error.reason})
                return
            told = {"option": proposal.option, "attempt": proposal.attempt}
            reviewer = display.answers[-1].body["reviewer"]
            self._log.append(thread, "committed", {**body, **told, "reviewer": reviewer})

    def _require_approvers(self, standing: Standing, display: Display, proposal: Proposal) -> None:
        """Refuse unless every approval holds now, of people who may rule on it now."""
        for one in display.answers:
            if self._log.now() >= one.body["expires_at_s"]:
                refuse("expired", "the approval has expired")
            self._reviewers.require_may_rule(one.body["reviewer"], standing, proposal)
        self._reviewers.require_eyes([one.body["reviewer"] for one in display.answers])

    def deliver(self, thread: str, number: int, role: str) -> None:
        """Carry out a seat's part of the plan in force, once; "no_part" where it has none."""
        with self._log.transaction():
            standing = self.stand(thread)
            if role in standing.displays[number].executed:
                return
            display = standing.require_in_force(number)
            parts = {part.role: part for part in display.proposal.parts}
            if role not in parts:
                refuse("no_part", f"{role} has no part in the proposal")
            body = {"digest": display.digest, "role": role, "action": parts[role].action}
            self._log.append(thread, "executed", body)

    def observe(self, thread: str, number: int, look: Callable[[], dict[str, Any]]) -> None:
        """Log once what is observed of the plan in force; "not_executed" while a part is not carried out."""
        with self._log.transaction():
            standing = self.stand(thread)
            if standing.displays[number].observed is not None:
                return
            display = standing.require_in_force(number)
            if set(display.executed) != {part.role for part in display.proposal.parts}:
                refuse("not_executed", "parts of the plan were not carried out")
            self._log.append(thread, "observed", {"digest": display.digest, **look()})

    def replan(self, thread: str, number: int) -> None:
        """Open the case again, once, after an alert on the plan in force; "no_alert", "no_replan_left"."""
        with self._log.transaction():
            standing = self.stand(thread)
            if standing.displays[number].is_replanned:
                return
            display = standing.require_in_force(number)
            if not (observed := display.observed or {}).get("alerts"):
                refuse("no_alert", "monitoring raised no alert on the plan in force")
            if standing.attempt >= MAX_REPLANS:
                refuse("no_replan_left", f"the case was planned anew {MAX_REPLANS} times")
            told = {name: observed[name] for name in ("alerts", "changed", "left")}
            body = {"digest": display.digest, "option": display.entry.body["option"], **told}
            self._log.append(thread, "replanned", body)

    def close(self, thread: str, number: int, tell: Callable[[str, Standing], dict[str, Any]]) -> str:
        """Close the case over the latest displayed plan; return its status, of a closed one the one it has.

        completed, completed_with_alerts, handed_over (in force, but no part to do) or not_approved. `tell`
        returns what the entry holds of the case beside its status.

        Raises:
            NotApprovedError: "superseded" by a later plan, or "waits" for a ruling.
        """
        with self._log.transaction():
            standing = self.stand(thread)
            if standing.status is not None:
                return standing.status
            display = standing.displays[number]
            if display is not standing.latest:
                refuse("superseded", "a case is closed with the plan that was displayed last")
            if display.ruling == "waiting":
                refuse("waits", "the case waits for a ruling on its latest plan")
            status = _find_status(standing, display)
            body = {"digest": display.digest, "status": status, **tell(status, standing)}
            self._log.append(thread, "closed", body)
            return status

    def list_threads(self) -> list[str]:
        """Return the threads that displayed something and are not closed, in order."""
        self._log.catch_up()
        return list(self._log.open_threads)

    def list_requests(self) -> list[str]:
        """Return the names of all requests, the newest first."""
        self._log.catch_up()
        return list(reversed(self._log.requests))

    def list_open(self) -> list[ReviewRequest]:
        """List the requests that can be answered: none that was settled, superseded or closed."""
        return [request for thread in self.list_threads() if (request := self.find_open(thread))]

    def find_open(self, thread: str) -> ReviewRequest | None:
        """Return the request of this thread that can be answered; None where none can."""
        try:
            display = self.stand(thread).open_display
        except NotApprovedError:
            return None
        return None if display is None else display.request

    def find(self, interrupt_id: str) -> Display | None:
        """Return the display of this request; None where there is none."""
        self._log.catch_up()
        return self.stand(self._log.requests.get(interrupt_id, STORE)).find(interrupt_id)

    def find_answer(self, interrupt_id: str) -> Entry | None:
        """Return the answer that settles the request; None while there is none."""
        display = self.find(interrupt_id)
        return None if display is None else display.answer

    def _require_open(self, interrupt_id: str) -> tuple[Standing, Display]:
        self._log.catch_up()
        standing = self.stand(self._log.requests.get(interrupt_id, STORE))
        display = standing.find(interrupt_id)
        if display is None:
            refuse("unknown", "there is no such request")
        standing.require_unclosed()
        if display is not standing.latest:
            refuse("superseded", "a later request stands in this thread")
        if display.ruling != "waiting":
            refuse("settled", f"the request was settled: {display.ruling} {display.refusal}".strip())
        return standing, display

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

    def _keep(self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str) -> Entry:
        with self._log.transaction(durable=True):
            standing, display = self._require_open(interrupt_id)
            proposal = display.proposal
            if not digest_shown == display.digest == proposal.digest:
                refuse("other_proposal", "the proposal shown is not the one that was requested")
            self._reviewers.require_may_rule(reviewer, standing, proposal)
            before = [one.body["reviewer"] for one in display.answers]
            if before and response.decision == "approve":
                self._reviewers.require_eyes([*before, reviewer])
            options = {NO_OPTION: True} | {one.option: one.worth is not None for one in proposal.options}
            if response.option is not None and not options.get(response.option):
                refuse(
                    "cannot_be_run" if response.option in options else "unknown_option",
                    f"option {response.option!r} cannot take the place of {proposal.option!r}",
                )
            body = {
                "digest": display.digest,
                "interrupt_id": interrupt_id,
                "option": proposal.option,
                "attempt": proposal.attempt,
                "reviewer": reviewer,
                "to": response.option,
                "feedback": response.feedback,
                "expires_at_s": int(self._log.now()) + LIFETIME_S,
            }
            return self._log.append(standing.thread, _KINDS[response.decision], body)

    async def ask(self, interrupt_id: str, reviewer: "Reviewer") -> Entry | None:
        """Return the kept answer, or ask the reviewer and keep the answer; None where there is none yet.

        The simulated reviewer is not asked in a thread in which a person was.
        """
        try:
            request = self._require_open(interrupt_id)[1].request
            if reviewer.name != SIMULATED:
                self._reviewers.note_asked(request, reviewer.name)
                await self._log.committed()
            elif self._reviewers.awaits_person(request.thread):
                return None
            response = await reviewer.review(request)
            if response is not None:
                self._keep(interrupt_id, request.digest, response, reviewer.name)
                await self._log.committed()
        except NotApprovedError as error:  # it may have been answered before, or elsewhere meanwhile
            if error.reason not in ("settled", "superseded", "closed", "one_pair_of_eyes"):
                raise
        return self.find_answer(interrupt_id)


def _find_status(standing: Standing, display: Display) -> str:
    """Return the status of a case that ends with this plan. See `Gate.close`."""
    parts = {part.role for part in display.proposal.parts}
    if display is not standing.in_force or set(display.executed) != parts:
        return "not_approved"
    if not parts:
        return "handed_over"
    has_alerts = display.observed is None or display.observed["alerts"]
    return "completed_with_alerts" if has_alerts else "completed"
