"""Recall of past decisions: similarity by hand, a horizon that does not move."""

from scenarios.execution import ActualEffect
from simulator.governance.log import DecisionLog
from simulator.governance.precedents import (
    MAX_OF_COMPANY,
    Precedent,
    Precedents,
    compute_similarity,
    list_features,
    write_recollection,
)
from simulator.governance.store import open_store

FIFTH = "a fifth less time"


def open_precedents() -> tuple[Precedents, DecisionLog]:
    log = DecisionLog(open_store(None)[0], lambda: 0.0, key=b"k" * 32)
    return Precedents(log), log


def close(log: DecisionLog, name: object, words: str, precedent: Precedent | None = None) -> None:
    told = make(int(str(name))) if precedent is None else precedent
    log.append(f"t{name}", "closed", {"status": "completed", "features": words.split(), "precedent": told})


def make(number: int, company: str = "", actuals: list[ActualEffect] | None = None) -> Precedent:
    return Precedent(
        case=f"case{number}",
        company=company,
        option="B",
        status="completed",
        alerts=["cost"],
        worth=90,
        promised=100,
        actuals=actuals or [],
    )


def test_features_by_hand() -> None:
    assert list_features({"cto": "Bank case. Stakes 83. B 7."}) == {
        "bank",
        "case",
        "stakes",
        "b",
        "cto stakes 8",
        "cto b 0",
    }


def test_similarity_is_the_shared_part() -> None:
    assert compute_similarity(frozenset("abc"), frozenset("bcd")) == 0.5
    assert compute_similarity(frozenset(), frozenset()) == 1.0


def test_the_nearest_three_come_back_the_older_first_among_equals() -> None:
    store, log = open_precedents()
    for number, words in enumerate(["a b", "a b c d", "x y", "a b", "a b c", "a b"]):
        close(log, number, words)
    found = store.recall(frozenset("ab"), store.horizon())
    assert [precedent["case"] for precedent in found] == ["case0", "case3", "case5"]
    assert found[0] == make(0)
    assert store.recall(frozenset("qrs"), store.horizon()) == []


def test_what_closes_later_is_not_recalled() -> None:
    store, log = open_precedents()
    close(log, 0, "a b")
    horizon = store.horizon()
    close(log, 1, "a b")
    assert [one["case"] for one in store.recall(frozenset("ab"), horizon)] == ["case0"]


def test_cases_of_the_same_company_come_first_the_newest_before_the_older() -> None:
    store, log = open_precedents()
    close(log, 99, "a b")
    for number in range(MAX_OF_COMPANY + 2):
        close(log, number, "x y z", make(number, company="Northbank is a bank."))
    found = store.recall(frozenset("ab"), store.horizon(), company="Northbank is a bank.")
    newest = [f"case{number}" for number in range(MAX_OF_COMPANY + 1, 1, -1)]
    assert [one["case"] for one in found] == [*newest, "case99"]


def test_a_brief_tells_what_the_seats_own_upgrades_really_brought() -> None:
    short = ActualEffect(
        seat="coo", upgrade="contractor transfer", stated="13 days", actual="19 days", lost=75
    )
    sound = ActualEffect(seat="coo", upgrade="overtime Anna", stated=FIFTH, actual=FIFTH, lost=0)
    precedents = [make(0, actuals=[short]), make(1, actuals=[sound, short])]
    assert write_recollection(precedents, "coo") == (
        "Closed cases of this company showed: contractor transfer: stated 13 days, brought 19 days "
        "(75 % of its effect lost); overtime Anna: stated a fifth less time, brought a fifth less time "
        "(0 % of its effect lost)."
    )
    assert write_recollection(precedents, "cto") == ""
