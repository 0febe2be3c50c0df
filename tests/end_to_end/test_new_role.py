"""A further role, Legal: with a seat from outside, and by the steps of docs/how-to/add-a-role.md."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from legal_family import FAMILY
from legal_role import ROLE
from legal_seat import seat_legal
from team_tables import CHAT, SAMPLING, SEATS, WatchedEngine

from roles.registry import ROLES
from roles.team import Decision, SpecialistReport
from scenarios import team
from scenarios.conformance import check
from scenarios.team.practices import best_decision
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.graph.team_graph import graph_mermaid
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "legal"
ALL = (*SEATS, "legal")
PAGE = ROOT / "docs" / "how-to" / "add-a-role.md"
LIMIT_S = 180  # of one block of the page, on a busy machine; idle all blocks together take under a minute


def draw_cases(count: int) -> list[team.TeamScenario]:
    return [seat_legal(team.generate("train", 0, index, 1 + index % 3)) for index in range(count)]


def play(cases: list[team.TeamScenario]) -> tuple[list[Episode], WatchedEngine]:
    policies = oracle_team(cases, report_practice="stakes", decision_practice="priority")
    engine = WatchedEngine(ScriptedEngine(CHAT, seeded=policies))
    roster = {role: role for role in (*ALL, "reconcile")}
    roles = {**ROLES, "legal": ROLE}
    episodes = play_episodes(cases, roster, engine, CHAT, SAMPLING, concurrency=1, roles=roles)
    return asyncio.run(episodes), engine


def score(case: team.TeamScenario, option: str, votes: dict[str, str]) -> TeamVerdict:
    decision = Decision(option=option, escalate=False).model_dump_json()
    episode = Episode(
        scenario_key=case.key,
        index_in_group=0,
        trajectories={},
        reports={},
        decision=decision,
        votes={role: f'{{"vote": "{vote}"}}' for role, vote in votes.items()},
    )
    return score_episode(case, episode, TeamRewardWeights())


def test_the_family_conforms() -> None:
    assert check(FAMILY) == []


def test_legal_reads_reports_and_votes_like_any_specialist() -> None:
    cases = draw_cases(40)
    episodes, engine = play(cases)
    assert len(engine.prompts("legal")) == 80  # a report and a vote in each
    assert all(prompt.startswith("<|system|>Legal.<|end|>") for prompt in engine.prompts("legal"))
    for case, episode, read in zip(cases, episodes, engine.prompts("reconcile"), strict=True):
        report = team.parse_report(case, episode.reports["legal"])
        assert report is not None
        assert "Legal seat" in case.seats["legal"].brief
        lines = read[read.index("Options") : read.index("<|end|><|assistant|>")].split("\n")
        assert [line.split()[0] for line in lines] == ["Options", *ALL]
        assert lines[-1].removesuffix(" out") == f"legal {report.pick} {report.flag}"
        assert report.veto[0] in lines[0].split(" Vetoed ")[1]
        assert tuple(episode.votes) == ALL
        assert set(episode.trajectories) == {*ALL, "reconcile"}
        assert score_episode(case, episode, TeamRewardWeights()).consensus == 1.0


def test_legal_decides_where_it_is_critical() -> None:
    """With stakes of 90 its flag is the highest: the priority practice follows its pick, ties apart."""
    cases = draw_cases(40)
    episodes, _ = play(cases)
    followed = 0
    for case, episode in zip(cases, episodes, strict=True):
        if case.seats["legal"].facts["stakes"] < 90:
            continue
        reports = {role: team.parse_report(case, text) for role, text in episode.reports.items()}
        decision = team.parse_decision(case, episode.decision)
        ordered = (reports.pop("legal"), *reports.values())
        legal, *others = (report for report in ordered if report is not None)
        assert legal.flag == 3
        vetoed = any(legal.pick in report.veto for report in others)
        if not vetoed and max(report.flag for report in others) < 3:
            assert decision is not None
            assert decision.option == legal.pick
            followed += 1
    assert followed >= 5


def test_headcount_counts_legal_and_a_tie_goes_to_the_older_seat() -> None:
    def read(**rows: str) -> dict[str, SpecialistReport | None]:
        made: dict[str, SpecialistReport | None] = {}
        for role, row in rows.items():
            made[role] = SpecialistReport(pick=row[0], flag=int(row[1]), veto=[])
        return made

    four = read(cto="A2", coo="A0", risk="B1", cost="B0")
    assert best_decision("ABC", four, "headcount").option == "A"
    assert best_decision("ABC", {**four, **read(legal="B0")}, "headcount").option == "B"
    assert best_decision("ABC", {**four, **read(legal="C3")}, "priority").option == "C"
    tie = read(legal="C2", coo="B2", cto="A2")  # given in another order than they speak
    assert best_decision("ABC", tie, "priority").option == "A"
    assert team.decision_brief("ABC", tie) == ("Options A B C. Vetoed none.\ncto A 2\ncoo B 2\nlegal C 2")
    vetoing: dict[str, SpecialistReport | None] = {
        **four,
        "legal": SpecialistReport(pick="C", flag=0, veto=["A", "B"]),
    }
    assert best_decision("ABC", vetoing, "headcount").option == "C"


def test_legal_counts_in_the_truth_and_in_the_reward() -> None:
    case = replace(team.generate("test", 0, 0, 1), seats={}, truth={})
    for role in SEATS:
        facts = {"utilities": {"A": 60, "B": 40, "C": 20}, "stakes": 10, "limit": 10}
        case = team.with_seat(case, ROLES[role], facts)
    assert case.truth["best"] == "A"
    facts = {"utilities": {"A": 30, "B": 99, "C": 50}, "stakes": 90, "limit": 40}
    case = team.with_seat(case, ROLE, facts)
    # weighted: A 4*600 + 2700 (vetoed), B 4*400 + 8910 = 10510, C 4*200 + 4500 = 5300
    assert case.truth["weighted"] == {"A": 5100, "B": 10510, "C": 5300}
    assert (case.truth["best"], case.truth["vetoes"]["A"]) == ("B", ["legal"])
    accept = dict.fromkeys(ALL, "accept")
    assert score(case, "B", accept).reward == 1.0
    assert score(case, "B", accept | {"legal": "object"}).consensus == pytest.approx(0.8)
    broken = score(case, "A", accept | {"legal": "object"})
    assert broken.unresolved == pytest.approx(0.2)
    assert broken.consensus == 1.0
    assert broken.reward == pytest.approx(-0.2 * 0.2)


def test_the_picture_shows_the_fifth_seat() -> None:
    picture = graph_mermaid(tuple(draw_cases(1)[0].seats))
    assert "intake -.-> legal;" in picture
    assert "legal --> reconcile;" in picture


@pytest.mark.parametrize(
    ("role", "changed", "message"),
    [
        (ROLES["cto"], {}, "seat 'cto' is taken"),
        (ROLE, {"utilities": {"B": 50, "A": 60, "C": 70}}, "A B C, in this order"),
        (ROLE, {"utilities": {"A": 50, "B": 60}}, "A B C, in this order"),
        (ROLE, {"limit": 99}, "forbids every option"),
    ],
)
def test_a_wrong_seat_is_refused(role: Any, changed: dict[str, Any], message: str) -> None:
    case = team.generate("train", 0, 0, 1)
    facts = {"utilities": {"A": 50, "B": 60, "C": 70}, "stakes": 15, "limit": 10} | changed
    with pytest.raises(ValueError, match=message):
        team.with_seat(case, role, facts)


def test_a_seat_that_leaves_two_best_options_is_refused() -> None:
    case = replace(team.generate("train", 0, 0, 1), seats={}, truth={})
    with pytest.raises(ValueError, match="two options are best"):
        team.with_seat(case, ROLE, {"utilities": {"A": 60, "B": 60, "C": 20}, "stakes": 15, "limit": 10})


FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LAYERS = ("roles", "scenarios", "simulator", "evaluation", "training", "emads")
PROGRAMS = {"emads": "-m emads.cli", "pytest": "-m pytest -p no:cacheprovider", "python": ""}


def apply_additions(root: Path, diff: str) -> None:
    """Write each `+` line of the page's diff after the line above it, which must be there once."""
    file, before = root, ""
    for line in diff.splitlines():
        if line.startswith("--- "):
            file = root / line.removeprefix("--- ")
        elif line.startswith("+"):
            text = file.read_text()
            assert text.count(f"{before}\n") == 1, f"{file.name} has no line {before!r}"
            file.write_text(text.replace(f"{before}\n", f"{before}\n{line[1:]}\n"))
        else:
            before = line[1:]


def copy_tree(root: Path) -> dict[str, str]:
    """Copy what the page's commands need, and return an environment whose programs run the copy."""
    skipped = shutil.ignore_patterns("__pycache__")
    for folder in (*LAYERS, "examples", "configs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=skipped)
    (root / "tests" / "scenarios").mkdir(parents=True)
    (root / "bin").mkdir()
    for name, module in PROGRAMS.items():
        program = root / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        program.chmod(0o755)
    path = f"{root / 'bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


def run_shell(text: str, root: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", text], cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout


# An old run and old data, made before the role; then read, played and scored with the role in the registries.
BEFORE = """
emads train base out/old --config configs/quick.yaml --set model.hidden_size=32 --set model.num_layers=1 \
    --set evaluation.num_role_scenarios=3 --set evaluation.num_team_scenarios=3 --set num_workers=0
emads generate --family cto --count 4 --processes 1 --out out/data
"""
AFTER = """
emads validate out/data
emads simulate out/old --stage base
emads evaluate out/old
"""


@pytest.mark.slow
def test_the_steps_of_the_page_make_it_a_role(tmp_path: Path) -> None:
    """Each block of the page in order, in a copy of the repository; runs and data of before still work."""
    environment = copy_tree(tmp_path)
    run_shell(BEFORE, tmp_path, environment)
    said = []
    for language, text in FENCE.findall(PAGE.read_text()):
        if language == "bash":
            said.append(run_shell(text, tmp_path, environment))
        elif language == "diff":
            apply_additions(tmp_path, text)
        else:
            file, _, code = text.removeprefix("# ").partition("\n")
            (tmp_path / file).write_text(code)
    out = "".join(said)
    assert "2 passed" in out
    assert "legal conforms" in out
    assert re.findall(r"(V\d)\W+legal\W", out) == ["V1", "V4"]
    assert "20 rows" in out
    assert (tmp_path / "out" / "run" / "checkpoints" / "sft" / "legal").is_dir()
    assert "team reward R" in out
    shown = run_shell(AFTER, tmp_path, environment)
    assert "4 of 4 rows are clean" in shown
    assert "base team of run old" in shown
    refused = subprocess.run(
        ["emads", "train", "grpo", "out/old", "--role", "legal"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert refused.returncode == 2
    assert "role 'legal' has no sft weights in out/old; first `emads train sft out/old`" in refused.stderr
