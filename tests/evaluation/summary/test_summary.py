"""Scores, summary and tables: shape, hand-computed numbers, pairing, round trips, refusals."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scored_outcomes import role_plays, store_plays, team_plays

from evaluation.scoring.outcomes import FOLDER, StagePlays, read_plays, read_stage, write_outcomes
from evaluation.stats.intervals import paired_interval
from evaluation.summary.run_summary import build_summary, combine_seeds, read_summary, write_summary
from evaluation.summary.run_tables import summary_tables
from evaluation.summary.tables import (
    change_cell,
    for_terminal,
    score_cell,
    short,
    short_change,
    write_markdown,
)
from roles.errors import UserError

ROLES = ("cto", "coo", "risk", "cost", "reconcile")
CHANGED = {stage: dict.fromkeys(ROLES, True) for stage in ("sft", "grpo", "marl")}
SIGNAL = {stage: dict.fromkeys(ROLES, 0.4) for stage in ("grpo", "marl")}


def role_scores(role: str, stage: str, rewards: tuple[float, ...], *, twin: bool = True) -> StagePlays:
    greedy = tuple(min(1.0, reward + 0.1) for reward in rewards) if twin else ()
    return role_plays(role, stage, rewards, greedy)


def team_scores(stage: str, rewards: tuple[float, ...], *, twin: bool = True) -> StagePlays:
    return team_plays(stage, rewards, rewards if twin else ())


def summarise(roles: list[StagePlays], team: list[StagePlays], seed: int = 0) -> dict[str, Any]:
    return build_summary(
        [*roles, *team],
        seed=seed,
        wall_s=60.0,
        versions={"emads": "0.1.0"},
        weights_changed=CHANGED,
        signal=SIGNAL,
    )


def small_summary() -> dict[str, Any]:
    baselines = {"random": (0.0, 0.2), "constant": (0.1, 0.1), "heuristic": (0.4, 0.6), "oracle": (1.0, 1.0)}
    trained = {"untrained": (0.0, 0.0), "sft": (0.5, 0.7), "grpo": (0.7, 0.8), "marl": (0.7, 0.9)}
    records = [
        role_scores(role, stage, rewards * 10, twin=stage in trained)
        for role in ROLES
        for stage, rewards in {**baselines, **trained}.items()
    ]
    team = {"random": (0.1, 0.3), "oracle_common": (0.6, 0.7), "grpo": (0.5, 0.7), "marl": (0.8, 0.9)}
    return summarise(records, [team_scores(stage, rewards * 10) for stage, rewards in team.items()])


def test_a_role_stage_has_hand_computed_means() -> None:
    stage = small_summary()["roles"]["cto"]["grpo"]
    assert stage["mean"] == pytest.approx(0.75)
    assert stage["greedy"] == pytest.approx(0.85)
    assert stage["low"] < 0.75 < stage["high"]
    assert stage["greedy_low"] < 0.85 < stage["greedy_high"]
    assert (stage["n"], stage["exact"], stage["feasible"]) == (20, 0.0, 1.0)
    assert (stage["tool_failures"], stage["mean_tokens"]) == (0.1, 40.0)


def test_baselines_without_a_twin_have_no_greedy_score() -> None:
    stage = small_summary()["roles"]["risk"]["oracle"]
    assert (stage["mean"], stage["low"], stage["high"], stage["exact"]) == (1.0, 1.0, 1.0, 1.0)
    assert stage["greedy"] is stage["greedy_low"] is stage["exact_greedy"] is None


def test_a_team_stage_has_its_parts() -> None:
    stage = small_summary()["team"]["marl"]
    assert stage["mean"] == stage["greedy"] == stage["value"] == pytest.approx(0.85)
    assert (stage["consensus"], stage["unresolved"], stage["escalation"]) == (0.75, 0.0, 0.0)
    assert stage["agreement"] == 0.75
    assert stage["agreement_when_wrong"] is None


def test_agreement_when_wrong_looks_at_worthless_decisions_only() -> None:
    rewards = (0.0, 1.0, 0.0, 0.5)
    for agreement, expected in (((1.0, 0.0, 0.5, 0.0), 0.75), ((0.0, 1.0, 0.0, 1.0), 0.0)):
        summary = summarise([], [team_plays("marl", rewards, agreement=agreement)])
        assert summary["team"]["marl"]["agreement_when_wrong"] == expected


def test_changes_are_paired_by_scenario() -> None:
    summary = small_summary()
    change = summary["roles"]["cto"]["paired"]["grpo-sft"]
    expected = paired_interval((0.7, 0.8) * 10, (0.5, 0.7) * 10)
    assert (change["mean"], change["low"], change["high"]) == (expected.mean, expected.low, expected.high)
    assert change["mean"] == pytest.approx(0.15)
    assert change["high"] - change["low"] < 0.06  # unpaired it would be twice as wide and more
    assert list(summary["roles"]["cto"]["paired"]) == [
        "sft-untrained", "sft-untrained_greedy", "grpo-sft", "grpo-sft_greedy", "marl-grpo",
        "marl-grpo_greedy", "marl-heuristic", "marl-heuristic_greedy",
    ]  # fmt: skip
    assert list(summary["team"]["paired"]) == [
        "marl-grpo", "marl-grpo_greedy", "marl-oracle_common", "marl-oracle_common_greedy",
    ]  # fmt: skip


def test_p_values_are_corrected_over_the_roles() -> None:
    records = [
        role_scores(role, stage, rewards)
        for role in ("cto", "coo")
        for stage, rewards in (("sft", (0.0,) * 8), ("grpo", (0.5,) * 8))
    ]
    summary = summarise(records, [])
    # all eight signs equal: 2 of 256 patterns, twice that for two roles
    assert summary["roles"]["cto"]["paired"]["grpo-sft"]["p"] == pytest.approx(2 * 2 / 256)
    alone = summarise(records[:2], [])
    assert alone["roles"]["cto"]["paired"]["grpo-sft"]["p"] == pytest.approx(2 / 256)


def test_the_control_brings_its_own_comparisons() -> None:
    records = [role_scores("cto", stage, (0.2, 0.4)) for stage in ("sft", "sft_more", "grpo")]
    assert set(summarise(records, [])["roles"]["cto"]["paired"]) == {
        "grpo-sft", "grpo-sft_greedy", "sft_more-sft", "sft_more-sft_greedy",
        "grpo-sft_more", "grpo-sft_more_greedy",
    }  # fmt: skip


def test_a_stage_given_twice_is_refused() -> None:
    twice = [role_scores("cto", "sft", (0.2,))] * 2
    with pytest.raises(ValueError, match="'sft' given twice"):
        summarise(twice, [])
    with pytest.raises(ValueError, match="'marl' given twice"):
        summarise([], [team_scores("marl", (0.2, 0.1))] * 2)


def test_stages_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="equal lengths"):
        summarise([role_scores("cto", "sft", (0.2, 0.3)), role_scores("cto", "grpo", (0.2,))], [])


def test_seeds_are_combined_and_written(tmp_path: Path) -> None:
    first, second = small_summary(), summarise([role_scores("cto", "sft", (0.2,))], [], seed=7)
    combined = combine_seeds([first, second])
    assert combined["seed"] == 0
    assert [one["seed"] for one in combined["seeds"]] == [0, 7]
    write_summary(tmp_path, combined)
    assert read_summary(tmp_path) == combined
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    with pytest.raises(ValueError, match="no summary"):
        combine_seeds([])


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": 0, "roles": {}}'])
def test_a_missing_older_or_damaged_summary_names_file_and_remedy(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(UserError, match=r"summary\.json.*emads evaluate "):
        read_summary(tmp_path)


def test_plays_survive_their_files_in_the_order_of_the_roles(tmp_path: Path) -> None:
    records = [
        role_scores("cto", "sft", (1 / 3, 1.0)),
        role_scores("reconcile", "grpo", (0.5, 0.0)),
        replace(team_scores("marl", (-0.2, 0.9), twin=False), repeats=(team_scores("x", (0.4,)).sampled,)),
    ]
    for record in reversed(records):
        store_plays(tmp_path, record)
    write_outcomes(tmp_path / FOLDER / "repeats" / "marl-team.1.jsonl", records[2].repeats[0])
    assert read_plays(tmp_path) == records
    assert read_stage(tmp_path, "sft", "coo") is None
    assert read_plays(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("reward", "1"), ("reward", float("nan")), ("turns", 1.5), ("exact", 1), ("extra", 1)],
)
def test_a_line_that_is_no_play_is_refused_with_its_place(tmp_path: Path, key: str, value: object) -> None:
    store_plays(tmp_path, role_scores("cto", "sft", (0.5, 1.0), twin=False))
    path = tmp_path / FOLDER / "sft-cto.sampled.jsonl"
    good = path.read_text().splitlines()[0]
    path.write_text(good + "\n" + json.dumps(json.loads(good) | {key: value}) + "\n")
    with pytest.raises(UserError, match=r"sft-cto.sampled.jsonl:2 is no outcome.*--again"):
        read_plays(tmp_path)


def test_a_file_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    store_plays(tmp_path, role_scores("cto", "sft", (0.5, 1.0)))
    store_plays(tmp_path, role_scores("cto", "grpo", (0.5,), twin=False))
    with pytest.raises(UserError, match=r"grpo-cto.sampled.jsonl holds 1 plays of 2; evaluate with --again"):
        read_plays(tmp_path)
    store_plays(tmp_path, replace(role_scores("cto", "sft", (0.5,)), stage="grpo"))
    (tmp_path / FOLDER / "sft-cto.greedy.jsonl").write_text("")
    lines = (tmp_path / FOLDER / "grpo-cto.greedy.jsonl").read_text()
    (tmp_path / FOLDER / "sft-cto.greedy.jsonl").write_text(lines)
    with pytest.raises(UserError, match=r"sft-cto.greedy.jsonl holds 1 plays of 2"):
        read_plays(tmp_path)
    with pytest.raises(ValueError, match="at least one scenario"):
        role_scores("cto", "sft", ())


def test_cells_read_as_documented() -> None:
    stage = {"mean": 0.62, "low": 0.6, "high": 0.65, "greedy": 0.714}
    assert score_cell(stage) == ".62 [.60, .65] (.71)"
    assert score_cell(stage | {"greedy": None}) == ".62 [.60, .65]"
    assert change_cell({"mean": 0.11, "low": 0.09, "high": 0.13}) == "+.110 [+.090, +.130] *"
    assert change_cell({"mean": -0.004, "low": -0.01, "high": 0.002}) == "-.004 [-.010, +.002]"
    assert change_cell(None) == "-"
    assert [short(value) for value in (1.0, 0.0, -0.004, 0.999, -0.25, None)] == [
        "1.00", ".00", ".00", "1.00", "-.25", "-",
    ]  # fmt: skip
    assert [short_change(value) for value in (1.0, 0.0, -0.0001)] == ["+1.000", ".000", ".000"]


def test_terminal_tables_show_every_role_stage_and_gate() -> None:
    summary = small_summary()
    console = Console(width=140, file=io.StringIO(), force_terminal=False)
    for table in summary_tables(summary):
        console.print(for_terminal(table))
    stream = console.file
    assert isinstance(stream, io.StringIO)
    text = stream.getvalue()
    for expected in (
        "CTO",
        "ReconcileGPT",
        "heuristic",
        score_cell(summary["roles"]["cto"]["grpo"]).split(" (")[0],
        "experts of mixed habits",
        "FAIL",
    ):
        assert expected in text
    assert "+.150 [" in text
    for gate in summary["gates"]:
        assert gate["name"] in text


def test_tables_are_rectangular_in_markdown() -> None:
    tables = summary_tables(small_summary())
    for table in tables:
        lines = write_markdown(table).splitlines()
        assert len({line.count("|") for line in lines}) == 1
        assert len(lines) == 2 + len(table.rows)
    assert "| CTO | .10 | .10 | .50 | 1.00 |" in write_markdown(tables[0])


def test_tables_of_a_partial_run_show_gaps() -> None:
    summary = summarise([role_scores("cto", "sft", (0.5,)), role_scores("legal", "grpo", (0.5,))], [])
    scores, *_ = tables = summary_tables(summary)
    assert "| legal | - | .50 [.50, .50] (.60) |" in write_markdown(scores)
    assert [table.title for table in tables][-1] == "Gates"
    assert len(tables) == 4  # no changes of a team that was not played
