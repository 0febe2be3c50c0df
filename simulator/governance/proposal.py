"""Proposals, the requests that show them, and reviewers' answers."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simulator.conflicts import Conflict, Name
from simulator.governance.seals import digest_json

Ruling = Literal["approve", "edit", "reject"]
DecisionType = Literal["routine", "contested", "critical", "escalation"]
MAX_FEEDBACK_CHARS = 2_000


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


class ReviewRequest(Record):
    """A proposal as displayed to a reviewer."""

    thread: Name
    interrupt_id: Name  # names the request
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # of the proposal
    proposal: Proposal
    refusal: str  # why the answer before did not count, "" without one
