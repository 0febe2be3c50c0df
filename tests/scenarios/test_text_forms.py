"""Surface forms: each reads back to the facts, all occur from difficulty 3, none changes what is right."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from roles.registry import ROLES
from roles.team import SPECIALISTS
from scenarios import team
from scenarios.base import FORMS, Form, Scenario
from scenarios.briefs.forms import FORMS_FROM, Fact, Sheet, choose_form, find_sector, join_words, write_form
from scenarios.briefs.sectors import SECTORS, VOCABULARIES
from scenarios.briefs.team import write_seat_brief
from scenarios.registry import FAMILIES

Facts = dict[str, Any]


def letters(text: str) -> list[str]:
    return re.findall(r"\b[A-Z]\b", text)


def number(pattern: str, text: str) -> int | None:
    found = re.findall(pattern, text)
    assert len(found) <= 1, f"{pattern} is ambiguous in {text}"
    return int(found[0]) if found else None


def read_tables(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The facts and the rows of a brief in Markdown."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]
        tables.append([dict(zip(head, row, strict=True)) for row in rows])
    facts, *others = tables
    return {row["fact"]: row["value"] for row in facts}, others[0] if others else []


def expect_cto(scenario: Scenario) -> Facts:
    options = list(scenario.facts["architectures"])
    return {
        "letters": sorted({option[0] for option in options}),
        "builds": sorted({int(option[1:]) for option in options if option[1:]}),
        **scenario.facts["limits"],
    }


def read_cto(text: str, form: Form) -> Facts:
    if form == "table":
        facts, _ = read_tables(text)
        throughput = facts.get("throughput at least (k/s)")
        return {
            "letters": letters(facts["options"]),
            "builds": [int(build) for build in facts.get("builds of each", "").split()],
            "max_latency": int(facts["latency at most (ms)"]),
            "min_availability": int(facts["availability at least (%)"]),
            "min_throughput": throughput and int(throughput),
        }
    lines = form == "lines"
    names = re.search(r"Options ([A-Z ]+)" if lines else r"Candidates are ([^.]+)", text)
    builds = re.search(r"in builds ([0-9 ]+)" if lines else r"in builds ([^.]+), named", text)
    assert names
    return {
        "letters": letters(names[1]),
        "builds": [int(build) for build in re.findall(r"\d", builds[1])] if builds else [],
        "max_latency": number(r"Latency at most (\d+)" if lines else r"take (\d+) ms", text),
        "min_availability": number(r"Availability at least (\d+)" if lines else r"reach (\d+) percent", text),
        "min_throughput": number(r"Throughput at least (\d+)" if lines else r"Peaks of (\d+) thousand", text),
    }


def expect_coo(scenario: Scenario) -> Facts:
    packages = {n: [dict(p["hours"]), sorted(p["after"])] for n, p in scenario.facts["packages"].items()}
    return {"deadline": scenario.facts["deadline"], "packages": packages}


def read_coo(text: str, form: Form) -> Facts:
    packages: Facts = {}
    if form == "table":
        facts, rows = read_tables(text)
        for row in rows:
            hours = {person: int(cell) for person, cell in row.items() if len(person) == 1 and cell != "-"}
            packages[row["package"]] = [hours, sorted(re.findall(r"P\d", row["after"]))]
        return {"deadline": int(facts["deadline (hours)"]), "packages": packages}
    if form == "lines":
        for line in text.splitlines()[1:]:
            first, _, after = line.partition(" after ")
            hours = {person: int(needed) for person, needed in re.findall(r"([A-C]) (\d+)", first)}
            packages[first.split()[0]] = [hours, sorted(after.split())]
        return {"deadline": number(r"Deadline (\d+)", text), "packages": packages}
    for name, ways, _, after in re.findall(
        r"Package (P\d) can be done ([^.]*?)(, once ([^.]*) is done)?\.", text
    ):
        hours = {person: int(needed) for person, needed in re.findall(r"by ([A-C]) in (\d+) hours", ways)}
        packages[name] = [hours, sorted(re.findall(r"P\d", after))]
    return {"deadline": number(r"within (\d+) hours", text), "packages": packages}


def expect_risk(scenario: Scenario) -> Facts:
    facts = scenario.facts
    costs = {name: control["cost"] for name, control in facts["controls"].items()}
    return {"assets": list(facts["impacts"]), "costs": costs, "budget": facts["budget"]}


def read_risk(text: str, form: Form) -> Facts:
    if form == "table":
        facts, rows = read_tables(text)
        costs = {row["control"]: int(row["cost (k$)"]) for row in rows}
        return {"assets": letters(facts["assets"]), "costs": costs, "budget": int(facts["budget (k$)"])}
    assets = re.search(r"Assets (?:are )?([^.]+)\.", text)
    assert assets
    pairs = re.findall(r"(K\d) (?:costs )?(\d+)", text)
    budget = number(r"Budget (\d+)" if form == "lines" else r"No more than (\d+) k\$", text)
    return {"assets": letters(assets[1]), "costs": {k: int(v) for k, v in pairs}, "budget": budget}


def expect_cost(scenario: Scenario) -> Facts:
    facts = scenario.facts
    items = {
        item: [price, *(number for more, better in dearer for number in (more - price, better - points))]
        for item, ((price, points), *dearer) in facts["items"].items()
    }
    basic = sum(tiers[0][1] for tiers in facts["items"].values())
    discount = facts["discount"] and (facts["discount"]["off"], facts["discount"]["count"])
    return {
        "items": items,
        "basic": basic,
        "floor": facts["floor"],
        "budget": facts["budget"],
        "discount": discount,
    }


def read_cost(text: str, form: Form) -> Facts:
    if form == "table":
        facts, rows = read_tables(text)
        stated = [
            facts["quality with tier 1 throughout"],
            facts["quality at least"],
            facts.get("budget (k$)"),
        ]
        off = re.findall(r"\d+", facts.get("discount", ""))[:2]
        items = {
            row["item"]: [int(n) for cell in list(row.values())[1:] for n in re.findall(r"\d+", cell)]
            for row in rows
        }
    elif form == "lines":
        stated = [number_text(p, text) for p in (r"quality (\d+)", r"at least (\d+)", r"Budget (\d+)")]
        off = [n for pair in re.findall(r"Discount (\d+) each when (\d+)", text) for n in pair]
        rows_ = re.findall(r"^(S\d) (\d+) 2 \+(\d+) \+(\d+) 3 \+(\d+) \+(\d+)$", text, re.MULTILINE)
        items = {item: [int(n) for n in numbers] for item, *numbers in rows_}
    else:
        patterns = (r"quality is (\d+)", r"come to (\d+)", r"more than (\d+) k\$ can")
        stated = [number_text(p, text) for p in patterns]
        off = [
            n for count, less in re.findall(r"Where (\d+) or more .* costs (\d+) k\$ less", text)
            for n in (less, count)
        ]  # fmt: skip
        tier = r"in tier {} (\d+) k\$ more, with (\d+) more quality"
        rows_ = re.findall(
            rf"Item (S\d) costs (\d+) k\$ in tier 1, {tier.format(2)}; {tier.format(3)}\.", text
        )
        items = {item: [int(n) for n in numbers] for item, *numbers in rows_}
    basic, floor, budget = (None if value is None else int(value) for value in stated)
    discount = (int(off[0]), int(off[1])) if off else None
    return {"items": items, "basic": basic, "floor": floor, "budget": budget, "discount": discount}


def number_text(pattern: str, text: str) -> str | None:
    found = number(pattern, text)
    return None if found is None else str(found)


def expect_reconcile(scenario: Scenario) -> Facts:
    facts = scenario.facts
    reports = {}
    weighted = any(weight != 1 for weight in facts["weights"].values())
    for name in SPECIALISTS:
        utilities = facts["utilities"][name]
        vetoed = [option for option in facts["options"] if utilities[option] < facts["limits"][name]]
        weight = facts["weights"][name] if weighted else None
        reports[name] = [weight, max(utilities, key=utilities.__getitem__), vetoed]
    return {"options": facts["options"], "reports": reports}


def read_reconcile(text: str, form: Form) -> Facts:
    if form == "table":
        facts, rows = read_tables(text)
        reports = {
            row["stakeholder"]: [
                int(row["weight"]) if "weight" in row else None,
                row["likes best"],
                letters(row["vetoes"]),
            ]
            for row in rows
        }
        return {"options": letters(facts["options"]), "reports": reports}
    options = re.search(r"Options (?:are )?([^.]+)\.", text)
    assert options
    pattern = (
        r"^(\w+)(?: weight (\d))? best ([A-Z]) veto (.+)$"
        if form == "lines"
        else r"Stakeholder (\w+)(?:, whose word has weight (\d),)? likes ([A-Z]) best and vetoes ([^.]+)\."
    )
    reports = {
        name: [int(weight) if weight else None, best, letters(vetoed)]
        for name, weight, best, vetoed in re.findall(pattern, text, re.MULTILINE)
    }
    return {"options": letters(options[1]), "reports": reports}


READERS: dict[str, tuple[Callable[[Scenario], Facts], Callable[[str, Form], Facts]]] = {
    "cto": (expect_cto, read_cto),
    "coo": (expect_coo, read_coo),
    "risk": (expect_risk, read_risk),
    "cost": (expect_cost, read_cost),
    "reconcile": (expect_reconcile, read_reconcile),
}


def tell(scenario: Scenario, form: Form) -> str:
    write = FAMILIES[scenario.family].write_brief
    assert write is not None
    return write(scenario, form)


@pytest.mark.parametrize("name", READERS)
def test_every_form_reads_back_to_the_facts(name: str) -> None:
    expect, read = READERS[name]
    for difficulty in (1, 2, 3, 4, 5, 7, 10):
        for index in range(10):
            scenario = FAMILIES[name].generate("test", 0, index, difficulty)
            for form in FORMS:
                text = tell(scenario, form)
                assert read(text, form) == expect(scenario), text


@pytest.mark.parametrize("name", READERS)
def test_low_difficulty_is_told_in_lines_and_later_every_form_occurs(name: str) -> None:
    for difficulty in (1, 2, 3, 6):
        told: Counter[Form] = Counter()
        for index in range(80):
            scenario = FAMILIES[name].generate("train", 0, index, difficulty)
            forms = [form for form in FORMS if tell(scenario, form) == scenario.brief]
            assert forms == [choose_form(name, "train", 0, index, difficulty)]
            told.update(forms)
        assert set(told) == ({"lines"} if difficulty < FORMS_FROM else set(FORMS))
        assert difficulty < FORMS_FROM or min(told.values()) >= 10


@pytest.mark.parametrize("name", READERS)
def test_another_form_changes_neither_tools_nor_truth_nor_verdicts(name: str) -> None:
    family = FAMILIES[name]
    for index in range(10):
        scenario = family.generate("train", 0, index, 5)
        answers = [family.baselines[kind](scenario, random.Random(0)) for kind in family.baselines]
        answers.append(json.dumps(family.solve(scenario)))
        for form in FORMS:
            told = replace(scenario, brief=tell(scenario, form))
            assert family.demonstrate(told, random.Random(1)) == family.demonstrate(
                scenario, random.Random(1)
            )
            assert [family.verify(told, a) for a in answers] == [family.verify(scenario, a) for a in answers]


def test_a_memo_tells_the_facts_in_another_order() -> None:
    for name in ("coo", "risk", "cost", "reconcile"):
        scenario = FAMILIES[name].generate("train", 0, 0, 5)
        ids = r"\b(?:P\d|K\d|S\d|cto|coo|risk|cost)\b"
        prose, memo = (re.findall(ids, tell(scenario, form)) for form in ("prose", "memo"))
        assert list(dict.fromkeys(memo)) != list(dict.fromkeys(prose))
        assert sorted(memo) == sorted(prose)


def read_seat(text: str, form: Form) -> Facts:
    if form == "table":
        facts, rows = read_tables(text)
        utilities = {row["option"]: int(row["worth"]) for row in rows}
        return {"utilities": utilities, "stakes": int(facts["stakes"]), "limit": int(facts["limit"])}
    if form == "lines":
        stakes, limit = number(r"Stakes (\d+)\.", text), number(r"Limit (\d+)\.", text)
        pairs = re.findall(r"\b([A-Z]) (\d+)\b", text)
    else:
        stakes, limit = number(r"stakes are (\d+)\.", text), number(r"less than (\d+) you must veto", text)
        pairs = re.findall(r"Option ([A-Z]) is worth (\d+)\.", text)
    return {"utilities": {option: int(worth) for option, worth in pairs}, "stakes": stakes, "limit": limit}


def test_seats_read_their_figures_in_every_form() -> None:
    told: Counter[Form] = Counter()
    for index in range(60):
        case = team.generate("train", 0, index, 3 + index % 2)
        form = choose_form("team", "train", 0, index, case.difficulty)
        told[form] += 1
        for role, seat in case.seats.items():
            own = {key: seat.facts[key] for key in ("utilities", "stakes", "limit")}
            assert read_seat(seat.brief, form) == own
            assert f"{ROLES[role].title} seat" in seat.brief
            for other in FORMS:
                text = write_seat_brief(case.sector, ROLES[role].title, seat.facts, other)
                assert read_seat(text, other) == own
    assert min(told[form] for form in FORMS) >= 6


def test_a_seat_that_joins_reads_the_form_of_the_case() -> None:
    case = replace(team.generate("train", 0, 2, 4), seats={}, truth={})
    facts: Mapping[str, Any] = {
        "utilities": dict(zip(case.options, (60, 40, 20, 30, 10), strict=True)), "stakes": 10, "limit": 10
    }  # fmt: skip
    seat = team.with_seat(case, ROLES["cto"], facts).seats["cto"]
    assert seat.brief == write_seat_brief(case.sector, "CTO", facts, choose_form("team", "train", 0, 2, 4))


def test_sectors_have_words_of_their_own_without_digits_or_ids() -> None:
    assert len(SECTORS) >= 8
    assert set(VOCABULARIES) == set(SECTORS)
    words = [
        (v.company, v.system, v.project, v.estate, v.order) for v in (VOCABULARIES[name] for name in SECTORS)
    ]
    assert all(re.fullmatch(r"[a-z]{2,}( [a-z]{2,})*", word) for row in words for word in row)
    assert all(len(set(column)) == len(SECTORS) for column in zip(*words, strict=True))
    for name, family in FAMILIES.items():
        easy, hard = family.generate("train", 0, 4, 2), family.generate("train", 0, 4, 5)
        assert easy.brief.startswith(f"{find_sector(easy).capitalize()} case.")
        vocabulary = VOCABULARIES[find_sector(hard)]
        assert not any(word in easy.brief for word in (vocabulary.company, vocabulary.system)), name
        assert vocabulary.company in tell(hard, "prose")
        assert vocabulary.company in tell(hard, "memo")


def test_forms_by_hand() -> None:
    sheet = Sheet(
        reader="COO",
        sector="bank",
        subject="move",
        task="Do it.",
        facts=(Fact(label="deadline", value="9", sentence="Be done in 9 hours."),),
    )
    assert write_form(sheet, "prose") == "This is about the move of the bank. Do it. Be done in 9 hours."
    assert write_form(sheet, "table") == (
        "## Bank: move\n\nDo it.\n\n| fact | value |\n|---|---|\n| deadline | 9 |"
    )
    assert write_form(sheet, "memo") == (
        "From: head office of the bank\nTo: COO\nSubject: move\n\nDo it.\n\n"
        "Be done in 9 hours.\n\nKind regards"
    )
    with pytest.raises(ValueError, match="itself"):
        write_form(sheet, "lines")
    assert [join_words(words) for words in (["A"], ["A", "B"], ["A", "B", "C"])] == [
        "A",
        "A and B",
        "A, B and C",
    ]
