"""Task families: conformance, hand-checked cases, and play of every kind through simulator.agents.solo."""

import ast
import asyncio
import inspect
import json
import random
import statistics
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hostile_policies import silent
from sandboxes import run_or_be_refused, works_here

from roles.errors import UserError
from roles.registry import ROLES
from scenarios.base import Family, Scenario, ToolCall, ToolError
from scenarios.conformance import CHECKS, check
from scenarios.registry import FAMILIES
from scenarios.tasks import imported
from scenarios.tasks.grading.arithmetic import calculate
from scenarios.tasks.imported import TaskSet, unseal_test
from scenarios.tasks.lookup import RELATIONS, build_records, find_names, join, walk
from scenarios.tasks.programs import STEPS, compute, draw_specification, recompute, write_program
from scenarios.tasks.question_files import read_questions
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import SoloEpisode, play_solos
from simulator.chat import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine

DIFFICULTIES = range(1, 11)
CHAT = PlainChat()
WITHOUT_SANDBOX = ("maths", "lookup")


@pytest.mark.parametrize("name", WITHOUT_SANDBOX)
def test_families_conform(name: str) -> None:
    assert check(TASK_FAMILIES[name]) == []


def test_the_program_family_conforms_where_programs_can_run() -> None:
    problems = check(TASK_FAMILIES["programs"], count=6)
    if works_here():
        assert problems == []
    else:
        assert problems
        assert all("programs run only in a sandbox" in problem for problem in problems)


def test_tasks_stand_outside_the_team() -> None:
    assert set(ROLES) == set(FAMILIES) == {"cto", "coo", "risk", "cost", "reconcile"}
    assert not set(TASK_ROLES) & set(ROLES)
    assert {family.role for family in TASK_FAMILIES.values()} == set(TASK_ROLES)
    assert imported.ROLE.name not in {*ROLES, *TASK_ROLES}


@pytest.mark.parametrize("name", WITHOUT_SANDBOX)
def test_blind_answers_earn_next_to_nothing_at_any_difficulty(name: str) -> None:
    family = TASK_FAMILIES[name]
    for difficulty in DIFFICULTIES:
        scenarios = [family.generate("train", 1, index, difficulty) for index in range(60)]
        for blind in ("random", "constant"):
            rewards = [
                family.verify(s, family.baselines[blind](s, random.Random(s.index))).reward for s in scenarios
            ]
            assert statistics.mean(rewards) <= 0.15
        most = Counter(family.solve(s)["answer"] for s in scenarios).most_common(1)[0][1]
        assert most <= 0.15 * len(scenarios)


@pytest.mark.parametrize("name", TASK_FAMILIES)
def test_demonstrations_fit_into_ten_turns(name: str) -> None:
    family = TASK_FAMILIES[name]
    for index in range(60):
        scenario = family.generate("train", 2, index, 10 - index % 2)
        assert len(family.demonstrate(scenario, random.Random(index))) <= 10


def test_a_maths_problem_by_hand() -> None:
    """The story of one scenario, followed with the expressions of its own steps."""
    scenario = TASK_FAMILIES["maths"].generate("train", 0, 0, 1)
    assert scenario.brief.startswith("Corvane sells 65 routers at 14 k$ each. Material costs 82 k$.")
    assert scenario.truth["answer"] == str(65 * 14 - 82) == "828"


def test_maths_rules_apply_above_their_threshold_only() -> None:
    family = TASK_FAMILIES["maths"]
    applied = Counter[bool]()
    for index in range(200):
        scenario = family.generate("train", 0, index, 6)
        value = calculate(scenario.facts["start"])
        for change in scenario.facts["changes"]:
            applies = change["over"] is None or value > change["over"]
            if change["over"] is not None:
                assert f"more than {change['over']} k$" in scenario.brief
                applied[applies] += 1
            if applies:
                value = calculate(change["expression"].format(v=f"({value})"))
        assert calculate(scenario.truth["answer"]) == value
    assert min(applied.values()) > 100


@pytest.mark.parametrize("wrong", ["1", "about 5", "5 k$", "", "five"])
def test_off_by_a_cent_is_wrong(wrong: str) -> None:
    family = TASK_FAMILIES["maths"]
    for index in range(20):
        scenario = family.generate("train", 3, index, 5)
        answer = scenario.truth["answer"]
        near = calculate(f"{answer} + 0.01")
        assert family.verify(scenario, json.dumps({"answer": f"{float(near):.2f}"})).reward == 0
        assert family.verify(scenario, json.dumps({"answer": f"${answer}"})).reward == 1
        assert family.verify(scenario, json.dumps({"answer": wrong})).reward == (wrong == answer)


RECORDS = {
    "Falcon pump": {"owner": "Ada Berg", "made_at": "Halden plant"},
    "Falcon valve": {"owner": "Bruno Dahl", "made_at": "Halden plant"},
    "Ada Berg": {"manager": "Bruno Dahl"},
    "Bruno Dahl": {"manager": "Ada Berg"},
}


def test_records_are_walked_and_joined_alike() -> None:
    assert walk(RECORDS, "Falcon pump", ["owner", "manager"]) == "Bruno Dahl"
    assert join(RECORDS, ["Falcon pump"], ["owner", "manager"]) == {"Bruno Dahl"}
    assert join(RECORDS, ["Falcon pump", "Falcon valve"], ["owner"]) == {"Ada Berg", "Bruno Dahl"}
    assert find_names(RECORDS, "falcon") == ["Falcon pump", "Falcon valve"]
    assert find_names(RECORDS, " ") == []


def test_every_relation_has_one_value_of_its_kind() -> None:
    records = build_records(random.Random(0), num_lines=4, num_people=40)
    kinds = {value: RELATIONS[relation][1] for about in records.values() for relation, value in about.items()}
    for name, about in records.items():
        assert {kind for kind, _, _ in (RELATIONS[relation] for relation in about)} <= {
            kinds.get(name, RELATIONS[relation][0]) for relation in about
        }
        assert all(value in records and value != name for value in about.values())


def test_a_described_start_fits_one_candidate_alone() -> None:
    family = TASK_FAMILIES["lookup"]
    for index in range(40):
        scenario = family.generate("train", 0, index, 9)
        facts = scenario.facts
        found = family.call_tool(scenario, ToolCall(name="search", arguments={"text": facts["line"]}))
        assert found.split(", ") == facts["candidates"]
        relation, value = facts["mark"]
        fitting = [name for name in facts["candidates"] if facts["records"][name][relation] == value]
        assert fitting == [scenario.truth["start"]]
        assert value in scenario.brief
        assert scenario.truth["answer"] not in scenario.brief


@pytest.mark.parametrize(
    "call",
    [
        ToolCall(name="lookup", arguments={"entity": "Nobody", "relation": "manager"}),
        ToolCall(name="lookup", arguments={"entity": "Falcon pump"}),
        ToolCall(name="lookup", arguments={"entity": 1, "relation": "manager"}),
        ToolCall(name="search", arguments={"text": None}),
        ToolCall(name="calculator", arguments={"expression": "1"}),
    ],
)
def test_lookup_refuses_bad_calls(call: ToolCall) -> None:
    family = TASK_FAMILIES["lookup"]
    with pytest.raises(ToolError):
        family.call_tool(family.generate("train", 0, 0, 1), call)


def test_a_specification_by_hand() -> None:
    specification = {"cut": 4, "steps": [["odd", 2], ["add", 3]], "combine": "largest", "empty": -1}
    assert compute(specification, [1, 2, 3, 4, 99]) == recompute(specification, [1, 2, 3, 4, 99]) == 6
    assert compute(specification, [2, 4]) == recompute(specification, [2, 4]) == -1
    assert compute(specification, [-5]) == recompute(specification, [-5]) == -2
    assert write_program(specification).splitlines() == [
        "def solve(xs):",
        "    xs = xs[:4]",
        "    xs = [x for x in xs if x % 2 == 1]",
        "    xs = [x + 3 for x in xs]",
        "    if not xs:",
        "        return -1",
        "    return max(xs)",
    ]


def test_two_implementations_agree_on_every_step() -> None:
    rng = random.Random(0)
    seen = set()
    for _ in range(600):
        specification = draw_specification(rng, num_steps=rng.randint(1, 4), with_cut=rng.random() < 0.5)
        seen |= {name for name, _ in specification["steps"]}
        numbers = [rng.randint(-20, 30) for _ in range(rng.randint(0, 8))]
        assert compute(specification, numbers) == recompute(specification, numbers), specification
    assert seen == set(STEPS)


def test_reference_programs_do_what_their_specification_says() -> None:
    family = TASK_FAMILIES["programs"]
    for index in range(8):
        scenario = family.generate("train", 0, index, index + 1)
        verdict = run_or_be_refused(partial(family.verify, scenario, json.dumps(family.solve(scenario))))
        assert verdict is None or verdict.reward == 1


def test_hidden_cases_are_no_examples() -> None:
    for index in range(40):
        scenario = TASK_FAMILIES["programs"].generate("train", 0, index, 4)
        shown = [numbers for numbers, _ in scenario.facts["examples"]]
        assert not any(numbers in shown for numbers, _ in scenario.truth["hidden"])
        assert scenario.truth["blind"] <= 0.4


def play(scenarios: list[Scenario], families: dict[str, Family], policy: str = "oracle") -> list[SoloEpisode]:
    roles = {**TASK_ROLES, imported.ROLE.name: imported.ROLE}
    policies = {"oracle": oracle_solo(scenarios, families=families), "silent": silent}
    return asyncio.run(
        play_solos(
            scenarios,
            policy=policy,
            engine=ScriptedEngine(CHAT, policies),
            chat=CHAT,
            sampling=Sampling(max_completion_tokens=4000),
            stream="tasks",
            max_turns=10,
            families=families,
            roles=roles,
        )
    )


@pytest.mark.parametrize("name", WITHOUT_SANDBOX)
def test_families_are_played_by_a_scripted_engine(name: str) -> None:
    scenarios = [TASK_FAMILIES[name].generate("validation", 0, index, 1 + index % 8) for index in range(16)]
    episodes = play(scenarios, TASK_FAMILIES)
    assert all(episode.verdict.reward == 1 for episode in episodes)
    for episode in episodes:
        trajectory = episode.trajectory
        calls, most = trajectory.num_tool_calls, episode.scenario.optimal_tool_calls
        assert 0 < calls == trajectory.num_valid_tool_calls <= most
    assert all(episode.verdict.reward == 0 for episode in play(scenarios, TASK_FAMILIES, "silent"))


def test_programs_are_played_or_refused() -> None:
    scenarios = [TASK_FAMILIES["programs"].generate("validation", 0, index, 3) for index in range(2)]
    episodes = run_or_be_refused(lambda: play(scenarios, TASK_FAMILIES))
    assert episodes is None or all(episode.verdict.reward == 1 for episode in episodes)


def write_questions(path: Path, count: int = 60) -> Path:
    """GSM8K-style rows whose solutions have one to four steps."""
    rows = []
    for number in range(count):
        text, value = "", number + 3
        for step in range(1 + number % 4):
            product = value * (step + 2)
            text += f"Then {value}*{step + 2} = <<{value}*{step + 2}={product}>>{product}.\n"
            value = product
        rows.append(
            {"question": f"Start with {number + 3}. What comes out?", "answer": f"{text}#### {value}"}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def tasks(tmp_path: Path) -> TaskSet:
    read, rejections = read_questions([write_questions(tmp_path / "sums.jsonl")], "gsm8k")
    assert rejections == []
    return TaskSet("sums", read)


def test_imported_tasks_are_played_by_a_scripted_engine(tasks: TaskSet) -> None:
    scenarios = imported.list_scenarios(tasks, "train")
    families = {"sums": imported.make_family(tasks)}
    episodes = play(scenarios, families)
    assert len(episodes) > 30
    assert all(episode.verdict.reward == 1 for episode in episodes)
    steps = {episode.trajectory.num_valid_tool_calls for episode in episodes}
    assert steps == {1, 2, 3, 4}
    assert all(episode.verdict.reward == 0 for episode in play(scenarios, families, "silent"))


def test_imported_tasks_keep_the_promises_that_apply(tasks: TaskSet) -> None:
    family = imported.make_family(tasks)
    scenarios = imported.list_scenarios(tasks, "train")[:20]
    for name in ("purity", "gold", "certificate", "zeros", "totality", "tools", "demonstrations"):
        assert list(CHECKS[name](family, scenarios)) == [], name


def test_the_test_split_is_sealed(tasks: TaskSet) -> None:
    family = imported.make_family(tasks)
    with pytest.raises(UserError, match="the test split of 'sums' is sealed: only evaluation reads it"):
        tasks.read("test")
    with pytest.raises(UserError, match="sealed"):
        imported.list_scenarios(tasks, "test")
    with pytest.raises(UserError, match="sealed"):
        family.generate("test", 0, 0, 1)
    with unseal_test() as key:
        opened = tasks.read("test", key)
        scenario = imported.make_family(tasks, key).generate("test", 0, 0, 1)
    assert opened
    assert scenario.split == "test"
    assert scenario.brief in {task.question for task in opened}
    with pytest.raises(UserError, match="sealed"):
        tasks.read("test", key)
    with pytest.raises(UserError, match="sealed"):
        imported.make_family(tasks, key).generate("test", 0, 0, 1)


def test_only_evaluation_and_the_importer_break_the_seal() -> None:
    root = Path(__file__).parent.parent.parent.parent
    users = {
        path.relative_to(root).as_posix()
        for folder in ("roles", "scenarios", "simulator", "training", "emads")
        for path in (root / folder).rglob("*.py")
        if "unseal_test" in path.read_text()
    }
    importer = {"training/data/tasks.py"}
    assert users <= {"scenarios/tasks/imported.py", *importer}
    assert not [
        node  # the module that makes keys takes none
        for node in ast.walk(ast.parse(inspect.getsource(imported)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "unseal_test"
    ]


def test_imported_scenarios_are_counted_within_their_difficulty(tasks: TaskSet) -> None:
    family = imported.make_family(tasks)
    for scenario in imported.list_scenarios(tasks, "validation"):
        assert family.generate("validation", 0, scenario.index, scenario.difficulty) == scenario
    count = sum(task.difficulty == 2 for task in tasks.read("train"))
    with pytest.raises(ValueError, match=f"{count} train tasks of difficulty 2, no index {count}"):
        family.generate("train", 0, count, 2)
    with pytest.raises(ValueError, match="seed 0"):
        family.generate("train", 1, 0, 1)
    with pytest.raises(UserError, match="did you mean 'test'"):
        tasks.read("tests")
