"""Proposals and answers: digests that any change changes, strict records, keys of their owner alone."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from roles.errors import UserError
from simulator.governance.proposal import (
    CaseWords,
    OfferLine,
    OptionLine,
    PlanPart,
    Proposal,
    ReportLine,
    ReviewResponse,
)
from simulator.governance.seals import find_key, read_or_create_key

KEY = b"k" * 32
PART = PlanPart(
    role="cto",
    action="build spare node on option B for 8 k$",
    choice=["spare node"],
    cost=8,
    worth=21,
    kpi_floor=100,
    most_lost=15,
)
OPTIONS = [
    OptionLine(option="A", base=30, worth=None, cost=0, fund=[], obstacle="A is vetoed by cto"),
    OptionLine(option="B", base=26, worth=47, cost=8, fund=["cto"], obstacle=""),
]
REPORT = ReportLine(
    offers=[OfferLine(option="B", part=["spare node"], cost=8, worth=21, is_funded=True)],
    needs=[],
    veto=["A"],
    note="",
    num_false_claims=0,
)
PROPOSAL = Proposal(
    thread="t1",
    case="team/test/0/7/2",
    attempt=0,
    revision=0,
    option="B",
    reason="B keeps every limit.",
    decision_type="contested",
    risk_score=4,
    options=OPTIONS,
    budget=40,
    reserve=8,
    cost=8,
    worth=47,
    conflicts=[],
    conditions=["cost is watched closely"],
    responsible=["cto"],
    accountable="cto",
    consulted=["cost"],
    parts=[PART],
    precedents=[],
    words=CaseWords(
        title="Where to store our data", context="", meanings={"A": "Our own rooms", "B": "A cloud"}
    ),
    reports={"cto": REPORT, "cost": None},
    changes=[],
)


CHANGES: dict[str, Any] = {
    "thread": "t2",
    "case": "team/test/0/8/2",
    "attempt": 1,
    "revision": 1,
    "option": "A",
    "reason": "",
    "decision_type": "routine",
    "risk_score": 5,
    "options": [OPTIONS[1].model_dump()],
    "budget": 41,
    "reserve": 9,
    "cost": 9,
    "worth": 48,
    "conflicts": [{"option": "B", "wanted_by": ["cto"], "ruled_out_by": ["cost"], "over_budget": 0}],
    "conditions": [],
    "responsible": ["coo"],
    "accountable": "coo",
    "consulted": [],
    "parts": [{**PART.model_dump(), "most_lost": 16}],
    "precedents": ["team/test/0/6/2"],
    "words": {"title": "Where to store our data", "context": "", "meanings": {"A": "A cloud"}},
    "reports": {"cto": {**REPORT.model_dump(), "veto": []}, "cost": None},
    "changes": ["option: A before, B now"],
}


def test_digest_is_the_sha256_of_the_sorted_json() -> None:
    again = Proposal.model_validate(dict(reversed(list(PROPOSAL.model_dump().items()))))
    assert again.digest == PROPOSAL.digest
    assert len(PROPOSAL.digest) == 64


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_is_in_the_digest(field: str) -> None:
    assert set(CHANGES) == set(Proposal.model_fields)
    changed = Proposal.model_validate({**PROPOSAL.model_dump(), field: CHANGES[field]})
    assert changed.digest != PROPOSAL.digest


def test_option_goes_with_edit() -> None:
    assert ReviewResponse(decision="edit", option="C").option == "C"
    with pytest.raises(ValidationError, match="option goes with edit"):
        ReviewResponse(decision="edit")
    with pytest.raises(ValidationError, match="option goes with edit"):
        ReviewResponse(decision="approve", option="C")


@pytest.mark.parametrize(
    ("field", "value"),
    [("decision", "Approve"), ("decision", "approve "), ("decision", True), ("approved", True)],
)
def test_answers_are_strict(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        ReviewResponse.model_validate({"decision": "approve", field: value})


def test_the_key_is_made_once_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "approval.key"
    key = read_or_create_key(path)
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_create_key(path) == key
    assert read_or_create_key(tmp_path / "other.key") != key


def test_a_key_that_others_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "approval.key"
    read_or_create_key(path)
    os.chmod(path, 0o640)
    with pytest.raises(UserError, match="chmod 600"):
        read_or_create_key(path)


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31, "ab" * 33])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "approval.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UserError, match="holds no approval key"):
        read_or_create_key(path)


def test_the_environment_may_hold_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "approval.key"
    monkeypatch.delenv("EMADS_APPROVAL_KEY", raising=False)
    from_file = find_key(path)
    monkeypatch.setenv("EMADS_APPROVAL_KEY", "ab" * 32)
    assert find_key(path) == bytes.fromhex("ab" * 32) != from_file
    monkeypatch.setenv("EMADS_APPROVAL_KEY", "")
    with pytest.raises(UserError, match="EMADS_APPROVAL_KEY"):
        find_key(path)
