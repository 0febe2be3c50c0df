"""Recall of past decisions: similarity by hand, a horizon that does not move, one precedent per thread."""

import pytest

from simulator.governance.precedents import Precedent, PrecedentStore, compute_similarity, list_features
from simulator.governance.store.database import open_store


def close(store: PrecedentStore, number: int, words: str) -> None:
    precedent = Precedent(case=f"case{number}", option="B", status="completed", alerts=["cost"])
    store.add(f"t{number}", frozenset(words.split()), precedent)


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
    store = PrecedentStore(open_store(None))
    for number, words in enumerate(["a b", "a b c d", "x y", "a b", "a b c", "a b"]):
        close(store, number, words)
    found = store.recall(frozenset("ab"), store.horizon())
    assert [precedent["case"] for precedent in found] == ["case0", "case3", "case5"]
    assert found[0] == {"case": "case0", "option": "B", "status": "completed", "alerts": ["cost"]}
    assert store.recall(frozenset("qrs"), store.horizon()) == []


def test_what_closes_later_is_not_recalled() -> None:
    store = PrecedentStore(open_store(None))
    close(store, 0, "a b")
    horizon = store.horizon()
    close(store, 1, "a b")
    assert [one["case"] for one in store.recall(frozenset("ab"), horizon)] == ["case0"]


def test_a_thread_keeps_its_first_horizon_and_its_case() -> None:
    store = PrecedentStore(open_store(None))
    assert store.open_thread("t", "case", 3) == 3
    assert store.open_thread("t", "case", 9) == 3
    with pytest.raises(ValueError, match="is of case"):
        store.open_thread("t", "other", 9)


def test_a_thread_closes_once() -> None:
    store = PrecedentStore(open_store(None))
    close(store, 0, "a b")
    close(store, 0, "c d")
    assert store.horizon() == 1
