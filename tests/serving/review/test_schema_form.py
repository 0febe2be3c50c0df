"""Forms from schemas: every kind of field goes out and comes back, and mistakes find their field."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from roles.base import Answer
from roles.team import Decision, OfferReply, Report
from serving.review.schema_form import Field as FormField
from serving.review.schema_form import check_value, make_fields, read_fields

REPORT = {
    "offers": [{"option": "A", "part": ["spare node", "faster switch"], "cost": 9, "worth": -4}],
    "needs": ["A"],
    "veto": [],
    "note": "A fails\nwithout it.",
}
DECISION = {"option": "B", "fund": ["cto"], "escalate": True, "conflicts": ["cto against cost"], "reason": ""}


class Odd(Answer):
    """Fields that no role has."""

    size: Literal["small", "large"]
    count: Annotated[int, Field(ge=2, le=5)]
    note: Annotated[str, Field(max_length=10)] = ""


def fill(fields: tuple[FormField, ...]) -> dict[str, list[str]]:
    """What a browser sends for a form that nobody touched."""
    sent: dict[str, list[str]] = {}
    for one in fields:
        match one.kind:
            case "group":
                sent |= fill(one.parts)
            case "groups":
                for row in one.rows:
                    sent |= fill(row)
            case "flag":
                sent |= {one.name: ["yes"]} if one.value else {}
            case "choices":
                sent |= {one.name: list(one.value)} if one.value else {}
            case "lines":
                sent[one.name] = ["\r\n".join(one.value)]
            case _:
                sent[one.name] = ["" if one.value is None else str(one.value).replace("\n", "\r\n")]
    return sent


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Report, REPORT),
        (Decision, DECISION),
        (OfferReply, {"offer": None}),
        (OfferReply, {"offer": REPORT["offers"][0]}),  # type: ignore[index]
        (Odd, {"size": "large", "count": 3, "note": ""}),
    ],
)
def test_what_goes_out_comes_back(schema: type[Answer], value: dict[str, object]) -> None:
    fields = make_fields(schema, value, prefix="answer")
    back = read_fields(schema, fill(fields), prefix="answer")
    assert back == value
    answer, errors = check_value(schema, back, prefix="answer")
    assert answer == schema.model_validate(value)
    assert errors == {}


def test_empty_rows_are_left_out_and_new_ones_are_read() -> None:
    form = fill(make_fields(Report, REPORT, prefix="a"))
    row = {"a.offers.2.option": ["B"], "a.offers.2.part": ["crew\n\n"], "a.offers.2.cost": [" 7 "]}
    back = read_fields(Report, form | row | {"a.offers.2.worth": ["x"]}, prefix="a")
    assert back["offers"][1] == {"option": "B", "part": ["crew"], "cost": 7, "worth": "x"}
    answer, errors = check_value(Report, back, prefix="a")
    assert answer is None
    assert list(errors) == ["a.offers.1.worth"]
    shown = make_fields(Report, back, prefix="a", errors=errors)
    (cell,) = [one for one in shown[0].rows[1] if one.name == "a.offers.1.worth"]
    assert cell.error
    assert cell.value == "x"


def test_choices_come_from_the_case_and_keep_what_was_said() -> None:
    choices = {"option": ["A", "B"], "fund": ["coo", "risk"]}
    option, fund, *_ = make_fields(Decision, DECISION | {"option": "Z"}, prefix="a", choices=choices)
    assert (option.kind, option.choices) == ("choice", ("A", "B", "Z"))
    assert (fund.kind, fund.choices, fund.value) == ("choices", ("coo", "risk", "cto"), ["cto"])


@pytest.mark.parametrize("given", ["1", "6", "2.5", "1e1", "", "9" * 400])
def test_numbers_are_judged_by_the_schema(given: str) -> None:
    back = read_fields(Odd, {"a.size": ["small"], "a.count": [given]}, prefix="a")
    answer, errors = check_value(Odd, back, prefix="a")
    assert answer is None
    assert list(errors) == ["a.count"]


def test_a_value_that_fits_no_schema_still_makes_a_form() -> None:
    fields = make_fields(Report, {"offers": "none", "needs": [1, "A"], "note": 3}, prefix="a")
    assert [one.kind for one in fields] == ["groups", "lines", "lines", "text"]
    assert fields[1].value == ["A"]
