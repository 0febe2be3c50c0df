"""Proposals and approvals: an approval is a signed record that holds for one proposal's digest, once.

A proposal is approved only by a live `ApprovalRecord` with a valid signature over exactly this thread,
interrupt and digest. Anything else (missing, stale, used, edited, of another type) is not approved.
"""

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from roles.errors import UserError
from simulator.conflicts import Conflict, Name
from simulator.governance.store.database import canonical_json, digest_json

Ruling = Literal["approve", "edit", "reject"]
DecisionType = Literal["routine", "contested", "critical", "escalation"]
Clock = Callable[[], float]  # seconds since 1970, UTC
MAX_FEEDBACK_CHARS = 2_000
MAX_LIFETIME_S = 7 * 24 * 3600
KEY_BYTES = 32
ROOT = 0
KEY_VARIABLE = "EMADS_APPROVAL_KEY"
_DOMAIN = b"emads approval v1\n"

Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Base of what governance stores and signs: exact types, no unknown key, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class PlanPart(Record):
    """The part of a plan that one seat carries out once the proposal is committed; money in k$.

    Example: PlanPart(role="coo", action="staff contractor transfer on option B for 9 k$",
                      choice=["contractor transfer"], cost=9, worth=14, kpi_floor=100, most_lost=12)
    """

    role: Name
    action: Name
    choice: list[Name]  # names of what is bought; [] for a seat that only keeps watch on its limit
    cost: Annotated[int, Field(ge=0)]
    worth: int
    kpi_floor: Annotated[int, Field(ge=0, le=1000)]  # percent of the seat's hard limit; under it, an alert
    most_lost: Annotated[int, Field(ge=0)]  # of the seat's promised worth; over it, an alert


class OfferLine(Record):
    """One offer as the reviewer sees it; money in k$."""

    option: Name
    part: list[Name]
    cost: int
    worth: int
    is_funded: bool


class ReportLine(Record):
    """A specialist's report as the reviewer sees it, its claims checked."""

    offers: list[OfferLine]
    needs: list[str]  # options that break the seat's limit unless something is bought there
    veto: list[str]
    note: str
    num_false_claims: int  # that were struck out


class OptionLine(Record):
    """One option and its best plan by the reports; money in k$.

    Example: OptionLine(option="B", base=26, worth=100, cost=40, fund=["cto", "coo"], obstacle="")
    """

    option: Name
    base: int  # before any spending
    worth: int | None  # None: it cannot be run
    cost: int
    fund: list[str]  # labels of the offers
    obstacle: str  # why it cannot be run; "" where it can


class CaseWords(Record):
    """The case in words, for a reviewer.

    Example: CaseWords(title="Which way does Northbank go?", context="", meanings={"A": "hosted switch"})
    """

    title: str
    context: str  # what every seat reads; "" without
    meanings: dict[str, str]  # option -> what it means


class Proposal(Record):
    """The plan that a reviewer is shown, with the case and the reports; nothing else is ever carried out.

    Example: Proposal(thread="t1", case="team/test/0/7/2", attempt=0, revision=0, option="B", reason="",
        decision_type="contested", risk_score=4, options=[], budget=40, reserve=8, cost=40, worth=100,
        conflicts=[], conditions=["cto: spare node is needed"], responsible=["cto"], accountable="cto",
        consulted=["risk"], parts=[], precedents=[],
        words=CaseWords(title="Which way?", context="", meanings={}), reports={}, changes=[])
    """

    thread: Name
    case: Name
    attempt: Annotated[int, Field(ge=0)]  # 0: the first plan; counts re-plans
    revision: Annotated[int, Field(ge=0)]  # how often a reviewer edited or sent back this case
    option: Name  # "none" where the case is handed to the reviewer
    reason: str  # ReconcileGPT's, in its words
    decision_type: DecisionType
    risk_score: Annotated[int, Field(ge=0, le=12)]
    options: list[OptionLine]
    budget: int  # k$ that may be spent now; in a re-plan what is left
    reserve: Annotated[int, Field(ge=0)]  # k$ that are set free once a plan was carried out; 0 in a re-plan
    cost: Annotated[int, Field(ge=0)]
    worth: int  # promised by the reports; 0 where the case is handed over
    conflicts: list[Conflict]
    conditions: list[str]
    responsible: list[Name]  # seats that something is bought for
    accountable: Name
    consulted: list[Name]
    parts: list[PlanPart]  # empty where there is nothing to carry out
    precedents: list[str]  # past cases that intake recalled
    words: CaseWords
    reports: dict[str, ReportLine | None]  # None: no valid report
    changes: list[str]  # since the proposal before

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: any change of any field changes it."""
        return digest_json(self.model_dump())

    @property
    def plan_digest(self) -> str:
        """SHA-256 of the plan and its figures alone, without the words, reports and changes beside them."""
        return digest_json(self.model_dump(exclude={"words", "reports", "changes", "reason"}))


class ReviewResponse(Record):
    """A reviewer's answer. `feedback` goes to ReconcileGPT after a rejection.

    Example: ReviewResponse(decision="edit", option="C", feedback="")
    """

    decision: Ruling
    option: Name | None = None  # the reviewer's own choice; with "edit", and only with it
    feedback: Annotated[str, Field(max_length=MAX_FEEDBACK_CHARS)] = ""

    @model_validator(mode="after")
    def _option_goes_with_edit(self) -> Self:
        if (self.option is not None) != (self.decision == "edit"):
            raise ValueError("option goes with edit, and only with it")
        return self


class ApprovalRecord(ReviewResponse):
    """A reviewer's signed answer to one proposal; it holds once, until it expires.

    Example: issue_approval(ReviewResponse(decision="approve"), key=key, thread="t1", interrupt_id="9f2c",
                            proposal_digest=proposal.digest, reviewer="ann", now_s=0, lifetime_s=600,
                            nonce="00" * 16).decision == "approve"
    """

    thread: Name
    interrupt_id: Name  # of the interrupt that displayed the proposal
    proposal_digest: Hex64
    reviewer: Name
    issued_at_s: Annotated[int, Field(ge=0)]
    expires_at_s: Annotated[int, Field(ge=0)]  # from this second on it is not an approval any more
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    signature: Hex64  # HMAC-SHA256 over all other fields


class NotApprovedError(Exception):
    """Something is not approved. `reason` is one word; the message is for people."""

    def __init__(self, reason: str, explanation: str) -> None:
        super().__init__(explanation)
        self.reason = reason


def refuse(reason: str, explanation: str) -> NoReturn:
    """Raise NotApprovedError."""
    raise NotApprovedError(reason, explanation)


def issue_approval(
    response: ReviewResponse,
    *,
    key: bytes,
    thread: str,
    interrupt_id: str,
    proposal_digest: str,
    reviewer: str,
    now_s: float,
    lifetime_s: int,
    nonce: str,
) -> ApprovalRecord:
    """Sign a reviewer's response.

    Raises:
        ValueError: lifetime_s outside 1 to MAX_LIFETIME_S, or a field that the record refuses.
    """
    if not 1 <= lifetime_s <= MAX_LIFETIME_S:
        raise ValueError(f"lifetime_s must be 1 to {MAX_LIFETIME_S}, got {lifetime_s}")
    fields = {
        **response.model_dump(),
        "thread": thread,
        "interrupt_id": interrupt_id,
        "proposal_digest": proposal_digest,
        "reviewer": reviewer,
        "issued_at_s": int(now_s),
        "expires_at_s": int(now_s) + lifetime_s,
        "nonce": nonce,
    }
    return ApprovalRecord.model_validate({**fields, "signature": _sign(fields, key)})


def read_approval(value: Any, *, key: bytes) -> ApprovalRecord:
    """Return the record if `value` is one and its signature is ours; its scope is not checked.

    Raises:
        NotApprovedError: "malformed" or "forged".
    """
    try:
        record = ApprovalRecord.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "answer"
        refuse("malformed", f"not an approval record: {where}: {first['msg']}")
    if not hmac.compare_digest(record.signature, _sign(record.model_dump(exclude={"signature"}), key)):
        refuse("forged", "the signature is not that of this approval")
    return record


def verify_approval(
    value: Any, *, key: bytes, thread: str, interrupt_id: str, digest: str, now_s: float
) -> ApprovalRecord:
    """Return the record if it is signed, not expired, and about exactly this proposal at this interrupt.

    Whether it was used before is the gate's to say.

    Raises:
        NotApprovedError: "malformed", "forged", "other_thread", "other_interrupt", "other_proposal",
            "not_yet_valid" or "expired".
    """
    record = read_approval(value, key=key)
    if record.thread != thread:
        refuse("other_thread", f"the approval is of thread {record.thread!r}")
    if record.interrupt_id != interrupt_id:
        refuse("other_interrupt", "the approval answers another request")
    if record.proposal_digest != digest:
        refuse("other_proposal", "the approval is of another proposal")
    if record.issued_at_s > now_s + 1:
        refuse("not_yet_valid", "the approval is dated in the future")
    if now_s >= record.expires_at_s or record.expires_at_s - record.issued_at_s > MAX_LIFETIME_S:
        refuse("expired", "the approval has expired")
    return record


def draw_nonce() -> str:
    """Draw 128 random bits from the system, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def read_or_create_key(path: Path) -> bytes:
    """Read the signing key in a file that only its owner can read; make it where it is missing.

    Raises:
        UserError: others can read or write the file, it is theirs, or it does not hold a key.
    """
    if os.path.lexists(path):
        return _read_key(path)
    key = secrets.token_bytes(KEY_BYTES)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as file:  # mode 0600
            file.write(key.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # whole or not at all, whatever another process does meanwhile
    except FileExistsError:
        return _read_key(path)
    except OSError as error:
        raise UserError(f"cannot make the approval key {str(path)!r}: {error.strerror}") from None
    return key


def find_key(path: Path) -> bytes:
    """Find the key in the environment variable EMADS_APPROVAL_KEY where it is set, else in the file.

    Raises:
        UserError: see `read_or_create_key`; or the variable does not hold 64 hexadecimal digits.
    """
    given = os.environ.get(KEY_VARIABLE)
    return read_or_create_key(path) if given is None else _parse_key(given, KEY_VARIABLE)


def _read_key(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="ascii") as file:
            found = os.fstat(file.fileno())
            text = file.read(4 * KEY_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the approval key {str(path)!r}: {error}") from None
    if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(f"others may read the approval key {str(path)!r}; run: chmod 600 {path}")
    if found.st_uid not in (os.geteuid(), ROOT):
        raise UserError(f"the approval key {str(path)!r} is another user's; make a key of your own")
    return _parse_key(text, str(path))


def _parse_key(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UserError(
            f"{source} holds no approval key ({2 * KEY_BYTES} hexadecimal digits); make a new one"
        )
    return key


def _sign(fields: dict[str, Any], key: bytes) -> str:
    return hmac.new(key, _DOMAIN + canonical_json(fields).encode(), hashlib.sha256).hexdigest()
