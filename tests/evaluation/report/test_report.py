"""The report: complete, self-contained, escaped, honest about what is missing; its curves and charts."""

import base64
import json
import re
from pathlib import Path

import pytest
from html_pages import Page
from report_runs import ROLES, TEAM, full_run, shown, side, summarise

from evaluation.report.charts import (
    CURVE_CHARTS,
    Curve,
    draw_bars,
    draw_curves,
    find_curves,
    read_metrics,
    smooth,
)
from evaluation.report.page import (
    list_findings,
    make_cards,
    render_report,
    results_page,
    write_conclusion,
    write_report,
)
from evaluation.summary.run_summary import combine_seeds, write_summary
from evaluation.summary.tables import TEAM_TITLES
from roles.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = full_run(tmp_path_factory.mktemp("trial"), summarise())
    assert write_report(path) == path / "report.html"
    assert not list(path.glob(".tmp-*"))
    return path


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return (run / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    assert not parsed.named("script")
    assert not parsed.named("link")
    assert all((image["src"] or "").startswith("data:image/svg+xml;base64,") for image in parsed.named("img"))
    assert all((link["href"] or "").startswith("#") for link in parsed.named("a"))
    ids = {attributes.get("id") for _, attributes in parsed.elements}
    assert all((link["href"] or "")[1:] in ids for link in parsed.named("a"))
    outside = re.findall(r"(?:https?:)?//[a-z]", re.sub(r'src="data:[^"]*"', "", page))
    assert outside == []
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in parsed.named("meta"))


def test_every_chart_has_a_description_with_its_numbers(page: str) -> None:
    alts = [image["alt"] or "" for image in Page(page).named("img")]
    assert len(alts) == 2 + len(ROLES) + 7
    assert all(len(alt) > 60 and alt.endswith(".") for alt in alts)
    assert any("experts of mixed habits" in alt and "n = 40" in alt for alt in alts)
    assert any("SFT: loss" in alt and "CTO from 1 to 2.06e-09 over 20 steps" in alt for alt in alts)
    for image in Page(page).named("img"):
        svg = base64.b64decode((image["src"] or "").partition(",")[2]).decode()
        assert "<svg" in svg
        assert "<script" not in svg


def test_the_page_shows_words_numbers_gates_episodes_and_provenance(page: str) -> None:
    for expected in (
        "Joint training made the team better: team reward 0.",
        "GRPO on the verified reward against SFT: 5 of 5 roles better, none worse",
        "roles better after GRPO",
        "experts of the best habits",
        "grpo_above_sft",
        'badge bad">FAIL',
        'badge good">pass',
        "option A",
        "option B",
        "1970-01-01 00:00:00 UTC",
        "packages torch",
        "name: trial",
    ):
        assert expected in page
    assert "packages vllm" not in page


def test_on_a_phone_every_cell_of_a_wide_table_keeps_its_column_title(page: str) -> None:
    cells = [cell.get("data-title") for cell in Page(page).named("td")]
    assert ".stack td[data-title]::before { content: attr(data-title)" in page
    assert {"GRPO", "team reward R", "agreement C"} <= set(cells)


CONTROLS = (
    "sft_more", "sft_own", "sft_instead", "grpo_instead", "sft_best_habit", "single_sft", "single_grpo",
)  # fmt: skip


def test_every_control_that_was_scored_stands_in_chart_table_and_document(tmp_path: Path) -> None:
    summary = summarise(team=TEAM | dict.fromkeys((*CONTROLS, "brand_new"), 0.6))
    for section in summary["roles"].values():
        section["sft_own"] = section["sft_more"]
    write_summary(tmp_path, summary)
    source = render_report(tmp_path)
    document = results_page([tmp_path], command="x")
    team, *_ = alts = [image["alt"] or "" for image in Page(source).named("img")]
    for title in (*(TEAM_TITLES[name] for name in CONTROLS), "brand_new"):
        assert title in team
        assert f'<th scope="row">{title}</th>' in source
        assert f"| {title} |" in document
    (role,) = [alt for alt in alts if alt.startswith("Bar chart, CTO")]
    assert "SFT longer" in role
    assert "SFT on own answers" in role
    assert "| SFT longer | SFT on own answers |" in document


def test_the_best_single_agent_stands_on_the_teams_card() -> None:
    summary = summarise(team=TEAM | {"single": 0.65, "single_grpo": 0.6})
    (card,) = [card for card in make_cards(summary) if "one player" in card.label]
    team, single = (summary["team"][stage]["mean"] for stage in ("marl", "single"))
    assert card.value == f"{team:.2f} / {single:.2f}"
    assert not [card for card in make_cards(summarise()) if "one player" in card.label]


def test_the_team_stands_beside_the_players_that_see_every_brief() -> None:
    change = {"mean": -0.3, "low": -0.35, "high": -0.25}
    team = {name: {"mean": mean} for name, mean in (("marl", 0.62), ("single", 0.98), ("single_grpo", 0.9))}
    found = list_findings({"roles": {}, "team": team | {"paired": {"marl-single_grpo": change}}})
    assert found == [
        "The MARL team, in which no seat sees it all, earns 0.62; one rule that sees every seat's facts: "
        "0.98; single agent that sees all, GRPO: 0.90 (the team against it: -0.300 [-0.350, -0.250])."
    ]


def test_everything_from_the_run_folder_is_escaped(tmp_path: Path) -> None:
    attack = '<img src=x onerror="alert(1)">{{ 7 * 7 }}</section>'
    summary = summarise(roles=("cto", attack), n=10)
    summary["gates"][0] |= {"name": attack, "detail": attack}
    summary["versions"] = {attack: attack}
    run = tmp_path / "<i>run"
    run.mkdir()
    full_run(run, summary)
    (run / "provenance.json").write_text(json.dumps({attack: [attack]}))
    (run / "config.yaml").write_text(attack)
    write_summary(run, summary | shown(side(attack, attack), side("after", "x")))
    page = render_report(run)
    parsed = Page(page)
    assert len(parsed.named("section")) == 9
    assert all("onerror" not in image for image in parsed.named("img"))
    assert "{{ 7 * 7 }}" in page
    assert not parsed.named("i")


def test_missing_pieces_are_named_with_their_command(tmp_path: Path) -> None:
    write_summary(tmp_path, summarise(("cto",), n=10))
    page = render_report(tmp_path)
    Page(page)
    for name in (
        "metrics.jsonl",
        "diagnostics.json",
        "config.yaml",
        "provenance.json",
    ):
        wanted = rf"No <code>{re.escape(name)}</code> in this run, .*<code>emads [a-z]+ "
        assert re.search(wanted, page)


def test_a_missing_summary_names_file_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"summary\.json.*emads evaluate "):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_run_without_a_team_or_training_still_makes_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    write_summary(tmp_path, summarise(("cto",), {}, n=10))
    page = render_report(tmp_path)
    assert "GRPO made " in page
    assert "No team was evaluated in this run." in page
    assert "metrics.jsonl holds no series that this report draws." in page
    write_summary(tmp_path, summarise(roles=(), team={}))
    assert "Nothing was trained in this run" in render_report(tmp_path)


def test_several_seeds_are_listed(tmp_path: Path) -> None:
    summary = summarise(("cto",), n=20)
    summary["gates"] = [{"name": "team_gain", "passed": True, "detail": "x"}]
    failing = summary | {"seed": 11, "gates": [{"name": "team_gain", "passed": False, "detail": "x"}]}
    write_summary(tmp_path, combine_seeds([summary, failing]))
    page = render_report(tmp_path)
    assert '<th scope="row">seed 11</th>' in page
    assert "<b>1 of 2</b><span>gates passed over 2 seeds</span><small>failed: seed 11: team_gain" in page


def test_the_page_is_the_same_every_time(run: Path, page: str) -> None:
    assert render_report(run) == page


@pytest.mark.parametrize(
    ("low", "high", "words", "tone"),
    [
        (0.02, 0.2, "made the team better", "good"),
        (-0.2, -0.02, "made the team worse", "bad"),
        (-0.05, 0.2, "made no measurable difference", "neutral"),
    ],
)
def test_the_conclusion_follows_the_interval(low: float, high: float, words: str, tone: str) -> None:
    summary = summarise()
    summary["team"]["paired"]["marl-grpo"] |= {"low": low, "high": high}
    conclusion, found = write_conclusion(summary)
    assert words in conclusion
    assert found == tone
    assert make_cards(summary)[0].tone == tone


def test_findings_tell_losses_and_missing_controls() -> None:
    summary = summarise()
    summary["roles"]["risk"]["paired"]["grpo-sft"] |= {"low": -0.2, "high": -0.1}
    for section in summary["roles"].values():
        del section["paired"]["grpo-sft_more"]
    text = " ".join(list_findings(summary))
    assert "against SFT: 4 of 5 roles better, Risk worse" in text
    assert "was not run" in text
    assert "Joint training, each role's own score: " in text
    summary["gates"] = [{"name": "team_gain", "passed": False, "detail": "x"}]
    card = next(card for card in make_cards(summary) if card.label == "gates passed")
    assert (card.value, card.note, card.tone) == ("0 of 1", "failed: team_gain", "bad")


def test_metrics_are_read_without_bad_lines(tmp_path: Path) -> None:
    lines = [
        '{"stage": "marl", "step": 1, "time_s": 5, "metrics": {"own/cto": 0.5, "kl": "NaN", "b": true}}',
        '{"stage": "sft/cto", "step": 2, "time_s": 3.0, "metrics": {"loss": 1, "bad": NaN}}',
        '{"stage": "sft/cto", "step": null, "metrics": {}}',
        '{"stage": "sft/cto", "step": 3}',
        "[1]",
        "{" * 3000,
        '{"sta',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert read_metrics(tmp_path) == [
        {"stage": "marl", "step": 1, "own/cto": 0.5},
        {"stage": "sft/cto", "step": 2, "loss": 1.0},
    ]
    assert read_metrics(tmp_path / "absent") == []


def test_curves_are_of_roles_or_of_the_weights_that_all_share() -> None:
    panel = next(panel for panel in CURVE_CHARTS if panel.title.startswith("GRPO: verified"))
    rows = [{"stage": "grpo/team", "step": step, "verified": 0.9, "verified/cto": 0.5} for step in (0, 1)]
    assert find_curves(rows, panel, ROLES) == [Curve(name="cto", steps=(0, 1), values=(0.5, 0.5))]
    entropy = next(panel for panel in CURVE_CHARTS if panel.title.startswith("GRPO: entropy"))
    shared = [{"stage": "grpo/team", "step": step, "entropy": 0.1} for step in (0, 1, 1)]
    assert find_curves(shared, entropy, ROLES) == [Curve(name="team", steps=(0, 1), values=(0.1, 0.1))]


def test_curves_of_other_stages_stay_out() -> None:
    panel = next(panel for panel in CURVE_CHARTS if panel.stage == "sft")
    rows = [
        {"stage": "sft/cto", "step": 0, "loss": 3.0},
        {"stage": "sft_more/cto", "step": 0, "loss": 2.0},
        {"stage": "sft/coo", "step": 5, "loss": 1.0},
    ]
    assert find_curves(rows, panel, ("cto", "coo")) == [
        Curve(name="cto", steps=(0,), values=(3.0,)),
        Curve(name="coo", steps=(5,), values=(1.0,)),
    ]


def test_smoothing_keeps_means_and_ends_by_hand() -> None:
    assert smooth([0.0, 3.0, 6.0, 3.0], window=3) == [1.5, 3.0, 4.0, 4.5]
    assert smooth([1.0, 5.0], window=1) == [1.0, 5.0]


def test_charts_describe_negative_and_missing_values() -> None:
    section = {"grpo": {"mean": -0.2, "low": -0.3, "high": -0.1, "greedy": None}}
    image = draw_bars("Team", section, {"grpo": "worse"}, axis="reward (n = 3)", width_in=3.0)
    assert image.alt == "Bar chart, Team, reward (n = 3): worse -0.20 (-0.30 to -0.10)."
    line = draw_curves("Loss $x$", [Curve(name="cto", steps=(4,), values=(2.0,))], unit="nats")
    assert line.alt == "Line chart, Loss $x$, nats: CTO from 2 to 2 over 4 steps."
