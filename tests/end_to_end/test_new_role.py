"""A further role, Legal: with a seat from outside, and by the steps of docs/how-to/add-a-role.md."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from legal_family import FAMILY
from legal_role import ROLE
from legal_seat import seat_legal
from northbank import seat_northbank, write_report
from team_tables import CHAT, SAMPLING, SEATS, WatchedEngine

from roles.registry import ROLES
from roles.team import Decision
from scenarios.base import Style
from scenarios.conformance import check
from scenarios.team import PlanGame, TeamScenario, generate, with_seat
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.graph.team_graph import team_graph
from simulator.reading import read_episode, read_reports
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "legal"
ALL = (*SEATS, "legal")
PAGE = ROOT / "docs" / "how-to" / "add-a-role.md"
LIMIT_S = 180  # of one block of the page, on a busy machine; idle all blocks together take under a minute


def draw_cases(count: int) -> list[TeamScenario]:
    return [seat_legal(generate("train", 0, index, 1 + index % 3)) for index in range(count)]


def play(cases: list[TeamScenario], style: Style) -> tuple[list[Episode], WatchedEngine]:
    policies = oracle_team(cases, report_habit="full", funding_habit="exact")
    engine = WatchedEngine(ScriptedEngine(CHAT, seeded=policies))
    roster = {role: role for role in (*ALL, "reconcile")}
    roles = {**ROLES, "legal": ROLE}
    make_game = partial(PlanGame, style=style)
    episodes = play_episodes(
        cases, roster, engine, CHAT, SAMPLING, concurrency=1, roles=roles, make_game=make_game
    )
    return asyncio.run(episodes), engine


def test_the_family_conforms() -> None:
    assert check(FAMILY) == []


@pytest.mark.parametrize("style", ["full", "short"])
def test_legal_reads_reports_and_votes_like_any_specialist(style: Style) -> None:
    cases = draw_cases(20)
    episodes, engine = play(cases, style)
    assert all(prompt.startswith("<|system|>Legal. ") for prompt in engine.prompts("legal"))
    for case, episode, read in zip(cases, episodes, engine.prompts("reconcile"), strict=True):
        game = PlanGame(case, style)
        report = game.read_report("legal", episode.reports["legal"])
        assert report is not None
        assert (len(report["offers"]), report["false_claims"]) == (len(case.options), [])
        assert game.write_decision_brief({**read_reports(case, episode), "legal": report}) in read
        assert tuple(episode.votes) == ALL
        assert set(episode.trajectories) == {*ALL, "reconcile"}
        assert score_episode(case, episode, TeamRewardWeights()).consensus == 1.0


def test_legal_changes_what_is_decided() -> None:
    """Its offers are funded where they pay, and where its need costs too much another option is taken."""
    cases = draw_cases(30)
    episodes, _ = play(cases, "short")
    read = [read_episode(case, episode) for case, episode in zip(cases, episodes, strict=True)]
    funded = ["legal" in one.decision.fund for one in read if one.decision is not None]
    assert 10 <= sum(funded) <= len(funded)
    others = [generate("train", 0, index, 1 + index % 3) for index in range(30)]
    changed = [
        one.optimum.plan.option != other.optimum.plan.option
        for one, other in zip(cases, others, strict=True)
        if one.optimum is not None and other.optimum is not None
    ]
    assert 0 < sum(changed) < len(changed)


def test_legal_counts_in_the_truth_and_in_the_reward() -> None:
    """Northbank: B with all four is worth 100 at cost 40; an escrow account (5 -> 30) pays on A alone."""
    facts = {"upgrades": {"A": {"escrow": {"cost": 5, "worth": 30}}}, "needs": {"A": ["escrow"]}}
    case = with_seat(seat_northbank(), "legal", facts)
    # A: 30 and cto 14 (9), coo 10 (7), risk 19 (8), cost 17 (10), legal 30 (5) are 120 at cost 39
    assert case.optimum is not None
    assert (case.optimum.plan.option, case.optimum.worth, case.optimum.cost) == ("A", 120, 39)
    offer = {"option": "A", "part": ["escrow"], "cost": 5, "worth": 30}
    legal = json.dumps({"offers": [offer], "needs": ["A"], "veto": []})
    reports = {seat: write_report(seat, "lean") for seat in SEATS} | {"legal": legal}

    def score(fund: tuple[str, ...], legal_votes: str) -> TeamVerdict:
        decision = Decision(option="A", fund=list(fund), escalate=False).model_dump_json()
        votes = dict.fromkeys(SEATS, "accept") | {"legal": legal_votes}
        episode = Episode(
            scenario_key=case.key,
            index_in_group=0,
            trajectories={},
            reports=reports,
            decision=decision,
            votes={role: json.dumps({"vote": vote}) for role, vote in votes.items()},
        )
        return score_episode(case, episode, TeamRewardWeights())

    assert score(ALL, "accept").reward == 1.0
    assert score(ALL, "object").consensus == pytest.approx(0.8)
    broken = score(SEATS, "object")
    assert broken.unresolved == pytest.approx(0.2)
    assert broken.consensus == 1.0
    assert broken.reward == pytest.approx(-0.2 * 0.2)


def test_the_picture_shows_the_fifth_seat() -> None:
    picture = team_graph(tuple(draw_cases(1)[0].seats)).get_graph().draw_mermaid()
    assert "intake -.-> legal;" in picture
    assert "legal --> reconcile;" in picture


@pytest.mark.parametrize(
    ("role", "facts", "message"),
    [
        ("cto", {}, "seat 'cto' is taken"),
        ("legal", {"veto": ["Z"]}, "got Z"),
        ("legal", {"needs": {"Y": ["escrow"]}}, "got Y"),
        ("legal", {"upgrades": {"X": {}}}, "got X"),
    ],
)
def test_a_wrong_seat_is_refused(role: str, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_seat(generate("train", 0, 0, 1), role, facts)


def test_a_seat_of_vetoes_alone_closes_options() -> None:
    case = generate("train", 0, 0, 1)
    closed = with_seat(case, "legal", {"veto": [*case.options]})
    assert closed.optimum is None
    report = PlanGame(closed).read_report("legal", json.dumps({"offers": [], "needs": [], "veto": ["A"]}))
    assert report is not None
    assert (report["veto"], report["false_claims"]) == (["A"], [])


FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LAYERS = ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads")
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
    fewer = root / "training" / "stages" / "sft.py"  # texts for the tokenizers of the runs that are made here
    fewer.write_text(fewer.read_text().replace("TOKENIZER_SCENARIOS = 300", "TOKENIZER_SCENARIOS = 10"))
    (root / "tests" / "scenarios").mkdir(parents=True)
    (root / "bin").mkdir()
    for name, module in PROGRAMS.items():
        program = root / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        program.chmod(0o755)
    path = f"{root / 'bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


def run(
    command: list[str], root: Path, environment: dict[str, str], given: str = ""
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command, cwd=root, env=environment, input=given, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done


# An old run and old data, made before the role; then read, played and scored with the role in the registries.
BEFORE = """
train base out/old --config configs/quick.yaml --set model.hidden_size=32 --set model.num_layers=1 \
    --set evaluation.num_role_scenarios=3 --set evaluation.num_team_scenarios=3 --set num_workers=0
generate --family cto --count 4 --processes 1 --out out/data
"""
AFTER = """
validate out/data
simulate out/old --stage base
evaluate out/old
train grpo out/old --role legal
"""
# Verbs in one process of the copy: most of the time of each would go into imports.
VERBS = """
import shlex, sys
from emads.cli import main
if __name__ == "__main__":
    sys.exit("".join(str(main(shlex.split(line))) for line in sys.argv[1:]) != sys.stdin.read())
"""


def run_verbs(
    lines: str, statuses: str, root: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run verbs one after the other; `statuses` has a digit for each."""
    script = root / "verbs.py"
    script.write_text(VERBS)
    words = lines.replace("\\\n", " ").strip().splitlines()
    return run([sys.executable, str(script), *words], root, environment, statuses)


@pytest.mark.slow
def test_the_steps_of_the_page_make_it_a_role(tmp_path: Path) -> None:
    """Each block of the page in order, in a copy of the repository; runs and data of before still work."""
    environment = copy_tree(tmp_path)
    run_verbs(BEFORE, "00", tmp_path, environment)
    said = []
    for language, text in FENCE.findall(PAGE.read_text()):
        if language == "bash":
            said.append(run(["bash", "-euc", text], tmp_path, environment).stdout)
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
    shown = run_verbs(AFTER, "0002", tmp_path, environment)
    assert "4 of 4 rows are clean" in shown.stdout
    assert "base team of run old" in shown.stdout
    message = "role 'legal' has no sft weights in out/old; first `emads train sft out/old`"
    assert message in shown.stderr
