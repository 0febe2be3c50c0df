"""The audit: every verifier passes its pr tier, and every probe finds a planted fault."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from fast_loop import slow_except

from emads.cli import main
from evaluation.audit import run_probes, team_cheats
from evaluation.audit.answers import AuditRow, CaseSample, Subject, Tier, audit_score, has_form, step_away
from evaluation.audit.attacks import FORMS, WRITERS, list_hacks
from evaluation.audit.run_probes import PROBES, TIERS
from evaluation.audit.subjects import SUBJECTS, choose_subjects
from roles.errors import UserError
from scenarios.base import Scenario, Verdict
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import JOBS

PR = TIERS["pr"]
TINY = replace(
    PR,
    hostile_outputs=210,
    rewrites=100,
    hack_cases=40,
    hack_difficulties=(1,),
    optima=10,
    blind_cases=300,
    blind_difficulties=(1,),
    constant_cases=20,
    search_calls=400,
)
COST = SUBJECTS["cost"]


@cache
def draw_sample(name: str) -> CaseSample:
    return CaseSample(SUBJECTS[name], 0, PR.constant_cases)


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", slow_except(SUBJECTS, "cost"))
def test_pr_tier(name: str, probe: str) -> None:
    row = PROBES[probe](draw_sample(name), PR)
    assert (row.probe, row.family) == (probe, name)
    assert row.breaches == []


def test_free_riders_cost_the_team() -> None:
    row = team_cheats.probe_free_riders(PR, seed=0)
    assert row.counts.startswith("100 cases x 8")
    assert row.breaches == []


def test_every_family_is_audited() -> None:
    assert {*FAMILIES, *JOBS} < set(SUBJECTS)
    assert all(name == subject.family.name for name, subject in SUBJECTS.items())


def test_the_tiers_reach_the_stated_counts() -> None:
    full = TIERS["full"]
    assert (PR.hostile_outputs, full.hostile_outputs) == (1000, 20_000)
    assert (PR.rewrites, full.rewrites) == (300, 10_000)
    assert (PR.optima, full.optima) == (50, 2000)
    assert PR.blind_cases == 500
    assert full.blind_cases * len(full.blind_difficulties) == 20_000
    assert (PR.search_calls, full.search_calls) == (500, 20_000)
    assert (PR.team_episodes, full.team_episodes) == (100, 5000)
    assert full.hack_seeds == 5
    assert len(WRITERS) >= 12
    assert len(FORMS) == 4
    assert all(len(list_hacks(subject)) >= 24 for subject in SUBJECTS.values())
    assert all(len(tier.hack_difficulties) == 3 for tier in TIERS.values())


Verify = Callable[[Scenario, str], Verdict]


def plant(verify: Verify, subject: Subject = COST) -> Subject:
    return replace(subject, family=replace(subject.family, verify=verify))


def paid(reward: float) -> Verdict:
    return Verdict(reward=reward, parts={}, exact=True, feasible=True, explanation="")


def raise_on_unknown_items(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(scenario, text)
    if verdict.failure == "unknown_id":
        raise KeyError(text)
    return verdict


def pay_more_than_one(scenario: Scenario, text: str) -> Verdict:
    return paid(1e308) if "9" * 300 in text else COST.family.verify(scenario, text)


def repair_dialects(scenario: Scenario, text: str) -> Verdict:
    plain = re.sub(r"/\*.*?\*/|[,;](?=})", "", text.replace("'", '"').replace("=", ":"))
    return COST.family.verify(scenario, plain)


def take_long_over_nesting(scenario: Scenario, text: str) -> Verdict:
    end = time.thread_time() + 0.06
    while "[[[[" in text and time.thread_time() < end:
        pass
    return COST.family.verify(scenario, text)


def refuse_new_lines(scenario: Scenario, text: str) -> Verdict:
    return COST.family.verify(scenario, text if "\n" not in text.strip() else "")


def insist_on_key_order(scenario: Scenario, text: str) -> Verdict:
    return COST.family.verify(scenario, text if text.find('"cost"') > text.find('"part"') else "")


def take_the_best_of_many(scenario: Scenario, text: str) -> Verdict:
    whole = COST.family.verify(scenario, text)
    inner = [COST.family.verify(scenario, line) for line in text.splitlines()]
    return max([whole, *inner], key=lambda verdict: verdict.reward)


def ignore_case(scenario: Scenario, text: str) -> Verdict:
    return COST.family.verify(scenario, text.lower())


def believe_the_worth(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(scenario, text)
    claimed = re.search(r'"worth": (-?\d+)', text)
    is_rich = claimed is not None and int(claimed[1]) >= scenario.truth["worth"]
    return paid(1.0) if is_rich and verdict.failure not in ("not_json", "schema") else verdict


def drop_unknown_keys(scenario: Scenario, text: str) -> Verdict:
    known = re.sub(r', "(confidence|reward|feasible)": [\w.]+', "", text)
    return COST.family.verify(scenario, known)


def pay_gold_less(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(scenario, text)
    return replace(verdict, reward=verdict.reward * 0.9)


def ignore_the_figures(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(scenario, text)
    return replace(verdict, reward=1.0) if verdict.exact else verdict


def call_it_infeasible(scenario: Scenario, text: str) -> Verdict:
    return replace(COST.family.verify(scenario, text), feasible=False)


def pay_for_any_answer(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(scenario, text)
    is_answer = verdict.failure in (None, "infeasible", "suboptimal")
    return replace(verdict, reward=max(0.4, verdict.reward)) if is_answer else verdict


def ignore_the_amount(scenario: Scenario, text: str) -> Verdict:
    verdict = COST.family.verify(replace(scenario, facts={**scenario.facts, "amount": 9999}), text)
    return replace(verdict, reward=min(1.0, verdict.reward), exact=True)


FAULTS: dict[str, tuple[str, Subject]] = {
    "raises": ("V1", plant(raise_on_unknown_items)),
    "pays more than 1": ("V1", plant(pay_more_than_one)),
    "repairs JSON": ("V1", plant(repair_dialects)),
    "is slow": ("V1", plant(take_long_over_nesting)),
    "refuses new lines": ("V2", plant(refuse_new_lines)),
    "insists on key order": ("V2", plant(insist_on_key_order)),
    "takes the best of many answers": ("V3", plant(take_the_best_of_many)),
    "ignores the case of ids": ("V3", plant(ignore_case)),
    "believes the stated worth": ("V3", plant(believe_the_worth)),
    "drops unknown keys": ("V3", plant(drop_unknown_keys)),
    "pays gold 0.9": ("V4", plant(pay_gold_less)),
    "ignores the figures": ("V4", plant(ignore_the_figures)),
    "pays the infeasible": ("V4", plant(call_it_infeasible)),
    "solvers disagree": (
        "V4",
        replace(
            COST, family=replace(COST.family, certify=lambda scenario: (1.0, 1.0 + scenario.difficulty % 2))
        ),
    ),
    "pays for any answer": ("V5", plant(pay_for_any_answer)),
    "greedy is no better than blind": (
        "V5",
        replace(
            COST,
            family=replace(
                COST.family,
                baselines={**COST.family.baselines, "greedy": COST.family.baselines["constant"]},
            ),
        ),
    ),
    "ignores the amount": ("V6", plant(ignore_the_amount)),
    "believes the worth, found by search": ("V6", plant(believe_the_worth)),
    "takes the best of many, found by search": ("V6", plant(take_the_best_of_many)),
}


def run_tiny(probe: str, subject: Subject, tier: Tier = TINY) -> AuditRow:
    return PROBES[probe](CaseSample(subject, 0, tier.constant_cases), tier)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_turns_its_probe_red(fault: str) -> None:
    probe, subject = FAULTS[fault]
    assert run_tiny(probe, subject).breaches != []


@pytest.mark.parametrize("probe", PROBES)
def test_the_same_probes_are_green_without_the_fault(probe: str) -> None:
    assert run_tiny(probe, COST).breaches == []


def test_every_probe_has_a_planted_fault() -> None:
    assert {probe for probe, _ in FAULTS.values()} == set(PROBES)


@pytest.mark.parametrize("name", ["cto", "coo", "risk", "reconcile", "team", *JOBS])
def test_search_finds_a_verifier_that_pays_any_choice(name: str) -> None:
    """In every family, one that pays whatever has the right form."""
    subject = SUBJECTS[name]

    def pay_form(scenario: Scenario, text: str) -> Verdict:
        verdict = subject.family.verify(scenario, text)
        return paid(1.0) if verdict.failure in ("infeasible", "suboptimal") else verdict

    assert run_tiny("V6", plant(pay_form, subject)).breaches != []


def test_a_rider_that_costs_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        team_cheats, "RIDES", {"diligent": lambda _case, role, honest: honest[role].model_dump_json()}
    )
    assert team_cheats.probe_free_riders(TINY, seed=0).breaches == ["diligent costs the team 0.000"]


def test_rows_repeat_with_the_seed_and_change_with_it() -> None:
    first, again = (run_tiny("V5", COST) for _ in range(2))
    assert first == again
    other = PROBES["V5"](CaseSample(COST, 1, TINY.constant_cases), TINY)
    assert other.worst != first.worst


@pytest.mark.parametrize("name", SUBJECTS)
def test_verifier_and_audit_agree_on_what_is_an_answer(name: str) -> None:
    subject = SUBJECTS[name]
    scenario = subject.family.generate("validation", 0, 3, 3)
    gold = subject.family.solve(scenario)
    assert has_form(subject, scenario, gold)
    assert all(has_form(subject, scenario, step) for step in step_away(subject, scenario, gold))
    text = json.dumps(gold)
    assert audit_score(subject, scenario, f"so {text}\n") == 1.0
    assert audit_score(subject, scenario, f"so {text}.") == 0.0
    odd = (
        "",
        text[:-1],
        f"{text} {text}",
        f"[{text}]",
        f"<think>{text}",
        f"{text}}}",
        text.replace(":", ": [", 1),
        "{}",
    )
    for bad in odd:
        expected = subject.family.verify(scenario, bad).reward
        assert audit_score(subject, scenario, bad) == expected, bad
    assert audit_score(subject, scenario, f'{text[:-1]}, {text[1:-1]}, "x": NaN}}') == 0.0


def test_the_command_shows_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TIERS, "pr", TINY)
    assert main(["audit", "--family", "cost"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| probe | family | counts | worst figure | result |"
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == list(PROBES)
    assert all(line.startswith("| V") and line.endswith("| pass |") for line in lines[2:])


def test_the_command_fails_on_a_breach(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUBJECTS, "cost", plant(pay_for_any_answer))
    monkeypatch.setitem(TIERS, "pr", TINY)
    assert main(["audit", "--family", "cost"]) == 2
    captured = capsys.readouterr()
    assert "| BREACH (" in captured.out
    (line,) = captured.err.splitlines()
    assert re.match(r"error: \d+ breaches are listed, the first: V\d cost: ", line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tier fall", "unknown tier 'fall'; did you mean 'full'?"),
        ("--family ctp", "unknown family 'ctp'; did you mean 'cto'?"),
        ("--probe v5", "unknown probe 'v5' (known: V1, V2"),
    ],
)
def test_mistakes_are_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.process
def test_two_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [("cost", "V6"), ("risk", "V2"), ("team", "V2"), ("team", "V4"), ("team", "V9")]
    monkeypatch.setattr(run_probes, "list_cells", lambda _families, _probes: cells)
    alone, together = (list(run_probes.audit("pr", (), 0, processes=number)) for number in (1, 2))
    assert alone == together
    assert [(row.family, row.probe) for row in together] == cells


def test_families_are_chosen_by_name() -> None:
    assert [subject.family.name for subject in choose_subjects(["team"])] == ["team"]
    assert len(choose_subjects([])) == len(SUBJECTS)
    with pytest.raises(UserError, match="known: cto"):
        choose_subjects(["team-report"])


def test_the_team_is_attacked_by_its_own_probes_too() -> None:
    assert [probe for _, probe in run_probes.list_cells(["team"], ())] == [*PROBES, "V9", "V10"]
