"""Facts are read out of a brief in any words; what cannot be read with certainty is refused."""

import pytest

from evaluation.audit.text_solvers import UnreadableBriefError, read_facts
from scenarios.registry import FAMILIES

NAMES = ["metal detector", "review watch", "recipe rights"]
PLAIN = (
    "Greenacre Foods makes chilled meals. Option A is: tracking service of the retailers.\n"
    "Every k$ of expected loss that is avoided is worth 1 k$. Hard limit: the expected loss is at most 45 k$ "
    "(the risk appetite).\nUpgrades on offer, with their cost in k$ a month: metal detector 8, "
    "review watch 5, recipe rights 6.\nWhich part is best on option A for at most 17 k$ a month?"
)
OTHERWISE = (
    "We run a kitchen for chilled meals, and option A, the tracking service of the retailers, is on the "
    "table. You may buy the recipe rights for 6 k$, the metal detector for 8 k$ and the review watch for "
    "5 k$. Each k$ of loss prevented counts 1 k$. The loss we expect must not exceed 45 k$! "
    "Find the best part on option A with no more than 17 k$ a month."
)


def test_the_same_facts_in_other_words() -> None:
    facts = read_facts("risk", PLAIN, NAMES)
    assert facts.option == "A"
    assert facts.figures == {"amount": 17, "avoided_loss": 1, "expected_loss": 45}
    assert facts.costs == {"metal detector": 8, "review watch": 5, "recipe rights": 6}
    assert read_facts("risk", OTHERWISE, NAMES) == facts


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("45 k$", "54 k$"),
        ("for 6 k$", "for 8 k$"),
        ("17 k$", "70 k$"),
        ("option A, the", "option B, the"),
        ("not exceed 45", "be at least 45"),
        ("must not exceed 45 k$", "is 45 k$"),
        ("recipe rights for 6 k$", "recipe rights"),
        ("counts 1 k$", "counts"),
        ("with no more than 17 k$ a month", "cheaply"),
        ("a kitchen", "a kitchen of 12 people"),
        ("Each k$", "At most 45 k$ of loss may be expected. Each k$"),
        ("the metal detector for 8 k$", "8 k$ for the metal detector"),
    ],
)
def test_other_facts_and_doubtful_ones_do_not_pass(words: str, other: str) -> None:
    assert words in OTHERWISE
    try:
        found = read_facts("risk", OTHERWISE.replace(words, other, 1), NAMES)
    except UnreadableBriefError:
        return
    assert found != read_facts("risk", PLAIN, NAMES)


@pytest.mark.parametrize("seat", ["cto", "coo", "risk", "cost"])
def test_every_brief_of_ours_is_read_as_its_facts_say(seat: str) -> None:
    for index in range(40):
        scenario = FAMILIES[seat].generate("train", 3, index, 1 + index % 10)
        upgrades = scenario.facts["structure"]["upgrades"]
        found = read_facts(seat, scenario.brief, list(upgrades))
        assert (found.option, found.figures["amount"]) == (scenario.facts["option"], scenario.facts["amount"])
        assert found.costs == {name: upgrade["cost"] for name, upgrade in upgrades.items()}
