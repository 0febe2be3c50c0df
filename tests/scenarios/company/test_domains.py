"""Figures, costs and worths of the four domains: structures by hand, and a second method on drawn ones."""

import pytest

from scenarios.company.domain import Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import has_twins, list_efficient
from scenarios.company.setting import draw_setting, draw_structure

NUM_CASES = 60  # structures per domain; benchmarks/scenarios/company_cases.py does 2,000

ARCHITECTURE = {
    "stages": [[["gateway"]], [["cache"], ["index", "store"]]],
    "components": {
        "gateway": {"latency": 20, "availability": 9900, "machines": 1},
        "cache": {"latency": 15, "availability": 9000, "machines": 1},
        "index": {"latency": 30, "availability": 9500, "machines": 1},
        "store": {"latency": 25, "availability": 9600, "machines": 1},
    },
    "upgrades": {
        "spare gateway": {"cost": 8, "component": "gateway"},
        "faster index": {"cost": 5, "component": "index", "latency": 12},
        "managed cache": {"cost": 6, "component": "cache", "availability": 9800},
    },
}
WORK = {
    "packages": {
        "design": {"owner": "Anna", "days": 10, "after": []},
        "transfer": {"owner": "Anna", "days": 21, "after": []},
        "trial": {"owner": "Ben", "days": 9, "after": ["design", "transfer"]},
    },
    "upgrades": {
        "overtime Anna": {"cost": 6, "person": "Anna"},
        "contractor transfer": {"cost": 9, "package": "transfer", "takes": 13},
        "extra shift trial": {"cost": 4, "package": "trial", "saves": 3},
    },
}
THREATS = {
    "assets": {
        "cards": {"loss": 80, "from": "outside", "routes": [["phishing", "password"]]},
        "ledger": {"loss": 90, "from": "cards", "routes": [["query"], ["malware", "keys"]]},
    },
    "steps": {"phishing": 80, "password": 50, "query": 30, "malware": 60, "keys": 50},
    "upgrades": {
        "mail filter": {"cost": 7, "step": "phishing", "to": 40},
        "query alerts": {"cost": 5, "step": "query", "to": 10},
    },
}
PRICES = {
    "items": {"storage": {"price": 42, "quality": 3}, "support": {"price": 35, "quality": 4}},
    "bundle": {"count": 2, "off": 2},
    "upgrades": {
        "committed storage": {"cost": 6, "item": "storage", "percent": 25},
        "premium storage": {"cost": 5, "item": "storage", "points": 2},
        "committed support": {"cost": 7, "item": "support", "percent": 30},
        "premium support": {"cost": 8, "item": "support", "points": 3},
    },
}


@pytest.mark.parametrize(
    ("seat", "structure", "choice", "cost", "figures"),
    [
        # 20 + max(15, 30 + 25) ms; .99 * (1 - .1 * (1 - .95 * .96)) = .981288
        ("cto", ARCHITECTURE, (), 0, {"latency": 75, "availability": 9812}),
        # .9999 * (1 - .1 * .088) = .99110
        ("cto", ARCHITECTURE, ("spare gateway",), 8, {"latency": 75, "availability": 9911}),
        # 20 + max(15, 12 + 25); .99 * (1 - .02 * .088) = .98825
        (
            "cto",
            ARCHITECTURE,
            ("faster index", "managed cache"),
            11,
            {"latency": 57, "availability": 9882},
        ),
        ("coo", WORK, (), 0, {"finish": 40}),  # 10, 31, 40
        ("coo", WORK, ("overtime Anna",), 6, {"finish": 34}),  # 8, 8 + 17 (16.8 up), 25 + 9
        ("coo", WORK, ("contractor transfer",), 9, {"finish": 22}),  # design 10, transfer 13, trial 22
        ("coo", WORK, ("overtime Anna", "contractor transfer"), 15, {"finish": 22}),
        ("coo", WORK, ("contractor transfer", "extra shift trial"), 13, {"finish": 19}),
        # cards .8 * .5 = .4 -> 32; ledger .4 * (1 - .7 * .7) = .204 -> 18.36
        ("risk", THREATS, (), 0, {"expected_loss": 50}),
        ("risk", THREATS, ("mail filter",), 7, {"expected_loss": 25}),  # 16; 9.18
        ("risk", THREATS, ("query alerts",), 5, {"expected_loss": 45}),  # 32; .4 * (1 - .9 * .7) * 90 = 13.32
        ("cost", PRICES, (), 0, {"saving": 0, "quality": 7}),
        ("cost", PRICES, ("committed storage",), 6, {"saving": 10, "quality": 7}),  # 10.5 down
        ("cost", PRICES, ("committed storage", "committed support"), 9, {"saving": 20, "quality": 7}),
        ("cost", PRICES, ("committed storage", "premium support"), 14, {"saving": 10, "quality": 10}),
    ],
)
def test_figures_by_hand(
    seat: str, structure: dict[str, object], choice: tuple[str, ...], cost: int, figures: dict[str, int]
) -> None:
    domain = DOMAINS[seat]
    assert domain.measure(structure, choice) == figures
    assert domain.price(structure, choice) == cost
    assert domain.measure_again(structure, choice) == (cost, figures)


@pytest.mark.parametrize(
    ("seat", "terms", "figures", "worth", "keeps"),
    [
        (
            "cto",
            Terms(
                rates={"latency_step": 2, "latency_reference": 90, "availability_step": 4},
                limits={"availability": 9950},
            ),
            {"latency": 71, "availability": 9969},
            2 * 1 + 4 * 1,  # 19 ms under: one full step; 19 hundredths over: one full step
            True,
        ),
        (
            "cto",
            Terms(
                rates={"latency_step": 2, "latency_reference": 90, "availability_step": 4},
                limits={"availability": 9950},
            ),
            {"latency": 95, "availability": 9949},
            0,
            False,
        ),
        ("coo", Terms(rates={"day": 3}, limits={"deadline": 40}), {"finish": 38}, 6, True),
        ("coo", Terms(rates={"day": 3}, limits={"deadline": 40}), {"finish": 41}, -3, False),
        (
            "risk",
            Terms(rates={"avoided_loss": 1}, limits={"expected_loss": 50}),
            {"expected_loss": 50},
            0,
            True,
        ),
        (
            "cost",
            Terms(rates={"point": 4, "ceiling": 9}, limits={"quality": 8}),
            {"saving": 10, "quality": 11},
            46,
            True,
        ),
        (
            "cost",
            Terms(rates={"point": 4, "ceiling": 9}, limits={"quality": 8}),
            {"saving": 0, "quality": 7},
            28,
            False,
        ),
    ],
)
def test_worth_and_limits_by_hand(
    seat: str, terms: Terms, figures: dict[str, int], worth: int, keeps: bool
) -> None:
    assert DOMAINS[seat].value(terms, figures) == worth
    assert DOMAINS[seat].keeps_limit(terms, figures) is keeps


def test_at_most_one_tier_per_item() -> None:
    choices = DOMAINS["cost"].list_choices(PRICES)
    assert choices[0] == ()
    assert len(choices) == len(set(choices)) == 9
    assert ("committed storage", "premium storage") not in choices


def test_efficient_parts_by_hand() -> None:
    terms = Terms(rates={"avoided_loss": 1}, limits={"expected_loss": 46})
    parts = price_parts(DOMAINS["risk"], THREATS, terms, "A")
    found = [(part.choice, part.cost, part.worth) for part in list_efficient(parts)]
    assert found == [
        (("query alerts",), 5, 5),  # () breaks the appetite
        (("mail filter",), 7, 25),
        (("mail filter", "query alerts"), 12, 28),  # 16 + 6.66 -> 22
    ]
    assert not has_twins(parts)


@pytest.mark.parametrize("seat", DOMAINS)
def test_two_methods_agree(seat: str) -> None:
    domain = DOMAINS[seat]
    for index in range(NUM_CASES):
        setting = draw_setting("train", 0, index, 1 + index % 10)
        structure, parts = draw_structure(setting, seat, "A")
        for part in parts[:: max(1, len(parts) // 8)]:
            assert domain.measure_again(structure, part.choice) == (part.cost, dict(part.figures))


@pytest.mark.parametrize("seat", DOMAINS)
@pytest.mark.parametrize("difficulty", [1, 5, 10])
def test_a_structure_has_choices_and_keeps_its_promise(seat: str, difficulty: int) -> None:
    for index in range(30):
        setting = draw_setting("test", 0, index, difficulty)
        for letter in setting.names:
            _, parts = draw_structure(setting, seat, letter)
            assert parts[0].choice == ()
            assert parts[0].cost == parts[0].worth == 0
            assert parts[0].keeps_limit == (letter not in setting.breaks_limit[seat])
            assert len({part.choice for part in parts}) == len(parts) <= 250
            assert all(part.cost > 0 for part in parts[1:])
            assert not has_twins(parts)
