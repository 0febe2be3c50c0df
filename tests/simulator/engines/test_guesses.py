"""Guesses of what follows: hand-made texts."""

import pytest

from simulator.engines.embedded.lanes import Guesses


def learnt(*texts: list[int]) -> Guesses:
    guesses = Guesses()
    for text in texts:
        guesses.learn(text, 0)
    return guesses


def test_what_followed_the_longest_run_is_guessed_before_what_followed_a_later_shorter_one() -> None:
    guesses = learnt([1, 2, 3, 4, 50, 51], [9, 9, 3, 4, 60, 61])
    assert guesses.find([1, 2, 3, 4], 2) == [50, 51]
    assert guesses.find([8, 3, 4], 2) == [60, 61]  # two tokens agree: the latest
    assert guesses.find([3, 8, 4], 2) == []


def test_a_place_with_as_many_tokens_as_wanted_goes_before_a_later_one_with_fewer() -> None:
    guesses = learnt([3, 4, 5, 6, 7], [3, 4, 5])
    assert guesses.find([3, 4], 1) == [5]
    assert guesses.find([3, 4], 3) == [5, 6, 7]
    assert guesses.find([3, 4], 4) == [5, 6, 7]  # fewer, where there are no more
    assert guesses.find([3, 4], 0) == []


def test_a_text_that_grows_is_learnt_from_where_it_stood_and_does_not_guess_its_own_end() -> None:
    guesses, text = Guesses(), [3, 4]
    guesses.learn(text, 0)
    assert guesses.find(text, 2) == []
    text += [5, 3, 4]
    guesses.learn(text, 2)
    assert guesses.find(text, 3) == [5, 3, 4]


def test_all_is_forgotten_before_it_takes_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.engines.embedded.lanes.MOST_TOKENS", 4)
    guesses = learnt([3, 4, 5, 6, 7])
    assert guesses.find([3, 4], 1) == [5]
    guesses.learn([8, 9, 1], 0)
    assert guesses.find([3, 4], 1) == []
    assert guesses.find([8, 9], 1) == [1]
