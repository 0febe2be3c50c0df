"""Label records, label files, several reviewers of one item, and the formats of other tools."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from roles.errors import UserError
from training.feedback.labels import (
    Comparison,
    Correction,
    Label,
    Message,
    Provenance,
    VerdictLabel,
    add_label,
    read_labels,
    replace_last,
    resolve_labels,
)

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def say(text: str, *ids: int) -> tuple[Message, ...]:
    return (Message(role="assistant", content=text, token_ids=ids or None),)


def common(reviewer: str = "ana", **values: Any) -> dict[str, Any]:
    return {
        "case": "cto/train/0/7/2",
        "seat": "cto",
        "prompt": (Message(role="system", content="CTO."), Message(role="user", content="Case.")),
        "reviewer": reviewer,
        "time": START,
        "provenance": Provenance(run="demo", weights="grpo", style="short"),
        **values,
    }


def comparison(
    reviewer: str, preferred: Literal["first", "second", "neither"], *, swapped: bool = False, **values: Any
) -> Comparison:
    first, second = say("A", 5, 1), say("B", 6, 1)
    if swapped:
        first, second = second, first
    return Comparison(first=first, second=second, preferred=preferred, **common(reviewer, **values))


def verdict(reviewer: str, approved: bool, **values: Any) -> VerdictLabel:
    return VerdictLabel(answer=say("A", 5, 1), approved=approved, **common(reviewer, **values))


def correction(reviewer: str, text: str) -> Correction:
    answer = (*say("look", 5, 1), Message(role="tool", content="35"), *say("A", 6, 1))
    return Correction(answer=answer, corrected=replace_last(answer, text), **common(reviewer))


def test_a_label_file_gives_back_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    labels: list[Label] = [comparison("ana", "first"), verdict("bo", False), correction("cy", "B")]
    for label in labels:
        add_label(path, label)
    with path.open("ab") as file:
        file.write(b'{"kind": "verd')  # a kill
    assert read_labels(path) == labels
    add_label(path, verdict("di", True))
    assert read_labels(path) == [*labels, verdict("di", True)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"approved": 1}, "approved"),
        ({"reviewer": ""}, "reviewer"),
        ({"time": "2026-01-02T03:04:05"}, "time"),
        ({"unknown": 1}, "unknown"),
        ({"answer": []}, "answer"),
        ({"answer": [{"role": "user", "content": "x"}]}, "answer: must begin"),
        ({"prompt": [{"role": "user", "content": "x"}]}, "prompt: must begin"),
        ({"kind": "wish"}, "kind"),
    ],
)
def test_a_line_that_is_no_label_is_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    path = tmp_path / "labels.jsonl"
    good = json.loads(verdict("ana", True).model_dump_json())
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
    with pytest.raises(UserError, match=r"labels.jsonl:2 is no label") as error:
        read_labels(path)
    assert named in str(error.value)


def test_a_correction_ends_with_words_of_the_reviewer() -> None:
    with pytest.raises(ValidationError, match="words of the reviewer"):
        Correction(answer=say("A", 5), corrected=say("A", 5), **common())


def test_missing_file_is_a_user_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no label file"):
        read_labels(tmp_path / "none.jsonl")


def test_an_item_is_the_same_whichever_way_round_it_was_shown() -> None:
    one, other = comparison("ana", "first"), comparison("bo", "second", swapped=True)
    assert one.item == other.item
    assert one.ruling == other.ruling
    assert comparison("bo", "first", swapped=True).ruling != one.ruling
    assert verdict("ana", True).item != one.item


def test_the_majority_of_the_reviewers_rules() -> None:
    labels = [comparison("ana", "first"), comparison("bo", "first", swapped=True), comparison("cy", "first")]
    found = resolve_labels(labels)
    assert [(label.reviewer, label.ruling) for label in found.labels] == [("ana", labels[0].ruling)]
    assert found.agreement == pytest.approx(1 / 3)  # ana and cy agree; ana and bo, bo and cy do not
    assert found.disputed == ()
    assert found.num_replaced == 0


def test_without_a_majority_an_item_is_disputed_until_an_adjudicator_rules() -> None:
    labels: list[Label] = [verdict("ana", True), verdict("bo", False)]
    found = resolve_labels(labels)
    assert found.labels == ()
    assert found.disputed == (labels[0].item,)
    ruling = verdict("head", False, adjudicates=True)
    assert resolve_labels([*labels, verdict("cy", True), ruling]).labels == (ruling,)


def test_a_later_label_of_a_reviewer_replaces_the_earlier_one() -> None:
    later = verdict("ana", False, time=START + timedelta(hours=1))
    found = resolve_labels([verdict("ana", True), later])
    assert found.labels == (later,)
    assert found.num_replaced == 1
    assert found.agreement is None
