"""The registry of role families: both styles tell the same cases, splits share no text, turns suffice."""

import json
from itertools import combinations
from typing import get_args

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from scenarios.base import Split, Style, ToolCall
from scenarios.registry import FAMILIES, SHORT_FAMILIES, families

STYLES: tuple[Style, ...] = ("full", "short")


def test_a_style_chooses_the_families() -> None:
    assert families("full") is FAMILIES
    assert families("short") is SHORT_FAMILIES
    assert list(FAMILIES) == list(SHORT_FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_both_styles_tell_the_same_case_in_other_words(name: str) -> None:
    for index in range(30):
        full, short = (families(style)[name].generate("train", 0, index, 1 + index % 10) for style in STYLES)
        assert (full.key, full.facts, full.truth) == (short.key, short.facts, short.truth)
        assert full.key.startswith(f"{name}/")
        assert len(short.brief) < len(full.brief)
        gold = json.dumps(FAMILIES[name].solve(full))
        assert SHORT_FAMILIES[name].verify(short, gold).reward == 1.0


def show_case(name: str, style: Style, split: Split, seed: int, index: int) -> str:
    """All that a model may read of a case: the brief, and in short style what describe adds to it."""
    family = families(style)[name]
    scenario = family.generate(split, seed, index, 1)
    if style == "full" or name == "reconcile":
        return scenario.brief
    call = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
    return f"{scenario.brief}\n{family.call_tool(scenario, call)}"


@pytest.mark.parametrize("count", slow_except((50, num_trials(150, 300)), 50))
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", FAMILIES)
def test_splits_share_no_text(name: str, style: Style, count: int) -> None:
    texts = [
        {show_case(name, style, split, seed, index) for seed in (0, 1) for index in range(count)}
        for split in get_args(Split)
    ]
    assert all(not one & other for one, other in combinations(texts, 2))
