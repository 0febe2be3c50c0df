"""A fifth specialist, Legal, joins: from outside the package, and by the lines that the README gives."""

import asyncio
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
# file -> (line that is there, line after it) for a role of the house; the last three seat it in every case
REGISTRATION = {
    "roles/registry.py": [
        ("from roles.cto import ROLE as CTO", "from roles.legal import ROLE as LEGAL"),
        ('    "cost": COST,', '    "legal": LEGAL,'),
    ],
    "scenarios/registry.py": [
        ("from scenarios.cto import FAMILY as CTO", "from scenarios.legal import FAMILY as LEGAL"),
        ('    "cost": COST,', '    "legal": LEGAL,'),
    ],
    "roles/team.py": [
        (
            'SPECIALISTS: tuple[str, ...] = ("cto", "coo", "risk", "cost")',
            'SPECIALISTS: tuple[str, ...] = ("cto", "coo", "risk", "cost", "legal")',
        )
    ],
    "scenarios/world/case.py": [
        ("from roles.team import SPECIALISTS", "from scenarios import legal"),
        (
            '    "cost": View(build_prices, best_total),',
            '    "legal": View(legal.build_contract, legal.contract_total),',
        ),
    ],
    "scenarios/team/certify.py": [
        ('    "cost": recheck_total,', '    "legal": lambda contract: sum(contract.values()),'),
    ],
}


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


PROGRAM = """
import asyncio, sys
from team_tables import CHAT, SAMPLING
from emads.cli import main
from roles.registry import ROLES
from scenarios import team
from scenarios.conformance import check
from scenarios.registry import FAMILIES
from simulator.engines.scripted import ScriptedEngine
from simulator.reward import TeamRewardWeights, score_episode
from simulator.graph.runner import play_episodes
from simulator.agents.scripted_policies import oracle_solo, oracle_team
from simulator.agents.solo import play_solos
from training.data.demonstrations import supervised_rows

assert check(FAMILIES["legal"], count=20) == []
assert check(FAMILIES["reconcile"], count=20) == []
alone = [FAMILIES["legal"].generate("train", 0, index, 2) for index in range(5)]
engine = ScriptedEngine(CHAT, {"legal": oracle_solo(alone)})
played = asyncio.run(play_solos(alone, policy="legal", engine=engine, chat=CHAT, sampling=SAMPLING,
                                stream="", max_turns=6))
assert [episode.verdict.reward for episode in played] == [1.0] * 5
cases = [team.generate("train", 0, index, 2) for index in range(20)]
for case in cases:
    assert list(case.seats) == ["cto", "coo", "risk", "cost", "legal"]
    stated, again = team.certify_team(case)
    assert stated == again
experts = oracle_team(cases, report_practice="stakes", decision_practice="priority")
engine = ScriptedEngine(CHAT, seeded=experts)
episodes = asyncio.run(play_episodes(cases, {role: role for role in ROLES}, engine, CHAT, SAMPLING))
rewards = [score_episode(*pair, TeamRewardWeights()).reward for pair in zip(cases, episodes, strict=True)]
assert sum(rewards) / len(rewards) > 0.5
rows = supervised_rows("legal", CHAT, num_rows=6, first_row=0, seat_share=0.5, seed=0, difficulties=(1, 2))
texts = [CHAT.decode(row.token_ids) for row in rows]
assert sum("Legal seat." in text for text in texts) == 3
assert main(["generate", "--family", "legal", "--family", "team", "--count", "3", "--out", "data"]) == 0
assert main(["validate", "data"]) == 0
"""


def test_the_readme_lines_make_it_a_role_of_the_house(tmp_path: Path) -> None:
    for layer in ("roles", "scenarios", "simulator", "evaluation", "training", "emads"):
        shutil.copytree(ROOT / layer, tmp_path / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "support" / "team_tables.py", tmp_path)
    shutil.copy(EXAMPLE / "legal_role.py", tmp_path / "roles" / "legal.py")
    family = (EXAMPLE / "legal_family.py").read_text()
    (tmp_path / "scenarios" / "legal.py").write_text(family.replace("from legal_role", "from roles.legal"))
    for name, lines in REGISTRATION.items():
        text = (tmp_path / name).read_text()
        for there, after in lines:
            assert text.count(f"{there}\n") == 1, f"{name} has no line {there!r}"
            replaces = after.startswith("SPECIALISTS")
            text = text.replace(f"{there}\n", f"{after}\n" if replaces else f"{there}\n{after}\n")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"21 of 21 rows are clean", done.stdout)  # 3 of legal, 3 cases of 6 roles


def test_the_readme_shows_these_lines_and_this_role() -> None:
    readme = (ROOT / "README.md").read_text()
    for lines in REGISTRATION.values():
        for _, after in lines:
            assert f"\n+{after}\n" in readme
    blocks = re.findall(r"```python\n(# (roles|scenarios)/legal\.py[^\n]*\n(.*?))```", readme, re.DOTALL)
    sources = {"roles": "legal_role.py", "scenarios": "legal_family.py"}
    assert {layer for _, layer, _ in blocks} == set(sources)
    for _, layer, code in blocks:
        source = (EXAMPLE / sources[layer]).read_text().replace("from legal_role", "from roles.legal")
        for part in code.split("\n...\n"):
            assert part.strip() in source
