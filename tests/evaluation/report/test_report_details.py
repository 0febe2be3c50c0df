"""What plays, probes and seeds add to the report and the Markdown page: charts with numbers, honest kinds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from html_pages import Page
from report_runs import ROLES, full_run, summarise
from scored_outcomes import outcome, team_outcome

from emads.cli import main
from evaluation.probes.diagnostics import Finding, read_diagnostics, write_diagnostics
from evaluation.report.charts import words_chart
from evaluation.report.page import render_report, results_page, write_results_page
from evaluation.scoring.outcomes import StagePlays, TeamOutcome
from evaluation.summary.comparison import read_seed_comparison, write_seed_comparison
from evaluation.summary.run_summary import build_details, combine_seeds, write_summary
from evaluation.summary.run_tables import detail_tables, finding_rows
from evaluation.summary.tables import short_change
from roles.errors import UserError

INTERVAL = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 40}


def diagnostics() -> dict[str, Any]:
    count = {"hits": 3, "n": 4}
    probe = {
        "role": "cto",
        "offered": count,
        "efficient": count,
        "false_claims": {"hits": 0, "n": 30},
        "limits_named": count,
        "marginal_value": INTERVAL,
        "used": count,
        "accepts_broken": {"hits": 0, "n": 0},
        "objects_sound": count,
    }
    finding = Finding(kind="yes_sayer", role="cto", evidence="14 of 14 decisions <b>accepted</b>")
    swaps = {
        row: {column: INTERVAL | {"mean": place} for column in ("sft", "marl")}
        for row, place in (("sft", 0.25), ("marl", 0.75))
    }
    return {
        "stage": "marl",
        "n": 40,
        "probe": {"roles": {"cto": probe}},
        "findings": [{"kind": finding.kind, "role": finding.role, "evidence": finding.evidence}],
        "swaps": swaps,
        "substitutes": {"untrained": {"cto": INTERVAL | {"mean": -0.4}}},
    }


def comparison() -> dict[str, Any]:
    change = INTERVAL | {"per_seed": [0.1, 0.2], "p": 0.02}
    score = INTERVAL | {"per_seed": [0.4, 0.6], "greedy": 0.55}
    return {
        "seeds": [3, 4],
        "runs": ["a", "b"],
        "same_scenarios": True,
        "owners": {"team": {"stages": {"marl": score}, "paired": {"marl-grpo": change}}},
    }


def make_run(path: Path) -> Path:
    path.mkdir()
    summary = combine_seeds([summarise(ROLES), summarise(ROLES) | {"seed": 4}])
    full_run(path, summary)
    plays = [outcome(number) for number in range(10)]
    episodes = [
        team_outcome({"cto": 2, "risk": 1}, false_claims={"cto": 0, "risk": 3}, funded=("cto",)),
        replace(team_outcome({"cto": 1}), difficulty=2, value=1.0, consensus=1.0),
    ]
    stored = [
        StagePlays(owner=owner, stage=stage, sampled=episodes if owner == "team" else plays)
        for owner in (*ROLES, "team")
        for stage in ("random", "sft", "marl")
    ]
    write_summary(path, summary | {"details": build_details(stored)})
    write_diagnostics(path, diagnostics())
    write_seed_comparison(path, comparison())
    (path / "config.yaml").write_text("name: trial\nteam_reward: {consensus: 1.0}\n")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render_report(make_run(tmp_path_factory.mktemp("details") / "run"))


def test_offers_are_on_the_page_seat_by_seat(page: str) -> None:
    text = " ".join(Page(page).text.split())
    assert "Offers, seat by seat" in text
    assert "CTO 1.00 1.50 0.00 .50" in text
    assert "Risk .50 0.50 1.50 .00" in text


def test_findings_seeds_and_faults_are_on_the_page_and_escaped(page: str) -> None:
    assert "14 of 14 decisions &lt;b&gt;accepted&lt;/b&gt;" in page
    assert "accepts what breaks its own hard limit" in page
    assert "Seeds 3, 4 together" in page
    assert "suboptimal 80 %, not json 10 %" in page
    assert "breaks a hard limit" not in page  # no episode did
    assert "Only baselines were evaluated" not in page


def test_checks_that_too_few_cases_leave_open_say_how_many_are_needed() -> None:
    seen = diagnostics() | {"findings": []}
    seen["probe"]["roles"]["cto"]["offered"] = {"hits": 9, "n": 10}  # enough
    none, *unchecked = finding_rows(seen)
    assert none == ("none in what could be checked", "-", "40 cases")
    assert [row[0].removeprefix("too few cases to tell: ").split()[0] for row in unchecked] == [
        "does",
        "ReconcileGPT",
        "accepts",
        "objects",
    ]
    assert unchecked[0][1:] == ("CTO", "4 of 10 occasions in 40 cases; about 100 cases are needed")
    assert unchecked[1][2] == "4 of 10 occasions in 40 cases; about 100 cases are needed"
    assert unchecked[2][2] == "0 of 10 occasions in 40 cases; many more cases are needed"
    plenty = {"hits": 50, "n": 99}
    counted = ("offered", "limits_named", "used", "accepts_broken", "objects_sound")
    seen["probe"]["roles"]["cto"] |= dict.fromkeys(counted, plenty)
    assert finding_rows(seen) == [("none", "-", "40 cases")]


def test_the_markdown_page_is_made_of_the_runs_and_names_its_command(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "docs" / "results.md"
    write_results_page(target, [run], command="emads report X --markdown Y")
    page = target.read_text()
    assert "Made by `emads report X --markdown Y`" in page
    changed = read_seed_comparison(run)["owners"]["team"]["paired"]["marl-grpo"]["mean"]
    headline = page.split("**")[1]  # of all seeds; what one seed showed stands below its own title
    assert headline.startswith("Over 2 seeds joint training changes the team reward by ")
    assert short_change(changed) in headline
    for wanted in (
        "## Seeds 3, 4 together",
        "| Team | MARL | .50 [.40, .60] (.55) | .40, .60 |",
        "| Team | MARL - GRPO |",
        "## Team diagnostics (marl team)",
    ):
        assert wanted in page
    assert page == results_page([run], command="emads report X --markdown Y")
    for line in page.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_a_damaged_file_is_named_with_its_remedy(run: Path) -> None:
    (run / "diagnostics.json").write_text("[1")
    with pytest.raises(UserError, match=r"diagnostics.json is not JSON.*emads diagnose"):
        read_diagnostics(run)
    (run / "summary.json").write_text(json.dumps([1]))
    with pytest.raises(UserError, match=r"summary.json is no object.*emads evaluate"):
        render_report(run)


def test_the_report_verb_wants_evaluated_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no run in" in capsys.readouterr().err


def words(reward: float, context: int, sequential: int, tokens: int) -> TeamOutcome:
    played = replace(team_outcome({"cto": 1}), reward=reward, context=context)
    return replace(played, sequential=sequential, tokens=tokens)


def test_the_front_of_reward_and_words_is_in_the_table_and_in_the_chart() -> None:
    """One agent earns as much with longer contexts; SFT takes fewest tokens; GRPO is worse than both."""
    plays = [
        StagePlays(owner="team", stage=stage, sampled=[play, replace(play, context=play.context - 20)])
        for stage, play in (
            ("sft", words(0.5, 100, 30, 90)),
            ("grpo", words(0.5, 100, 31, 90)),
            ("marl", words(0.75, 110, 40, 99)),
            ("single_grpo", words(0.75, 400, 80, 99)),
        )
    ]
    plays.append(StagePlays(owner="cto", stage="marl", sampled=[outcome(1)]))
    details = build_details(plays)
    (table,) = [one for one in detail_tables(details) if one.title.startswith("Team reward and the words")]
    assert list(table.rows) == [
        ("SFT", ".50", "100", "30", "90", "yes"),
        ("GRPO", ".50", "100", "31", "90", "no"),
        ("MARL", ".75", "110", "40", "99", "yes"),
        ("single agent that sees all, GRPO", ".75", "400", "80", "99", "no"),
    ]
    chart = words_chart(details)
    assert chart is not None
    assert "MARL, 40 in sequence, 99 in all: 0.75 at 110; single agent" in chart.alt
    assert words_chart({}) is None
