"""The public Python API: its examples run, it imports nothing heavy, and it says its mistakes in one line."""

import asyncio
import doctest
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from python_process import run_python

import emads
from emads.cli import main
from roles.errors import UserError
from scenarios.team import TeamScenario

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads")


@pytest.mark.parametrize("module", ["emads.api", "emads.team"])
def test_the_examples_of_the_public_functions_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_scripted_experts_play_generated_and_written_cases() -> None:
    team = emads.load_team("scripted")
    generated = emads.generate("team", 3, split="test", seed=4, unseal=True)
    cases = [case for case in generated if isinstance(case, TeamScenario)]
    played = emads.play(team, [*cases, ROOT / "examples" / "city-permits.md"])
    assert [one.case.key for one in played[:3]] == [case.key for case in cases]
    verdicts = [one.verdict for one in played]
    assert verdicts[3] is None
    rewards = [verdict.reward for verdict in verdicts[:3] if verdict is not None]
    assert len(rewards) == 3
    assert max(rewards) > 0.5
    assert "city-permits" in played[3].episode.scenario_key
    assert "Decision" in played[3].text


def test_stages_of_a_run_are_trained_in_order_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.stages.sft.TOKENIZER_SCENARIOS", 10)
    settings = ["num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.intermediate_size=64"]
    run = emads.train(tmp_path / "run", overrides=settings, stages=["base"])
    assert run.is_done("base")
    again = emads.train(tmp_path / "run", stages=["base"])
    assert again.config == run.config == emads.open_run(tmp_path / "run").config
    with pytest.raises(UserError, match=r"no sft weights .*emads train sft"):
        emads.train(tmp_path / "run", stages=["grpo"], roles=["cto"])
    assert emads.load_team(tmp_path / "run", stage="base").draw_case(0).key == "team/test/0/0/1"


def test_mistakes_name_value_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown family 'ctoo'; did you mean 'cto'"):
        emads.generate("ctoo")
    with pytest.raises(UserError, match="no run in"):
        emads.load_team(tmp_path)
    with pytest.raises(UserError, match="unknown stage 'mral'"):
        emads.load_team("scripted", stage="mral")
    with pytest.raises(AttributeError, match="no attribute 'pley'"):
        assert emads.pley


SCRIPTED = emads.load_team("scripted")
WRONG_CALLS: dict[str, Callable[[], object]] = {
    "cases -1 must be 1 or more": lambda: emads.play(SCRIPTED, -1),
    "cases True must be": lambda: emads.play(SCRIPTED, True),
    r"cases \[\] must be": lambda: emads.play(SCRIPTED, []),
    "case 3 is neither": lambda: emads.play(SCRIPTED, [3]),  # type: ignore[list-item]
    "first_index -3 must be": lambda: emads.play(SCRIPTED, 1, first_index=-3),
    "team 'scripted' is no team": lambda: emads.play("scripted"),  # type: ignore[arg-type]
    "unknown agent kind 'reakt'; did you mean 'react'": lambda: emads.play(
        SCRIPTED,
        kinds={"cto": "reakt"},  # type: ignore[dict-item]
    ),
    "did you mean 'scripted'": lambda: emads.load_team("scriptd"),
    "source 5 must be": lambda: emads.load_team(5),  # type: ignore[arg-type]
    "questions -1 must be": lambda: emads.load_team("scripted", questions=-1),
    "seats 'all=scripted' must be a list or a dict": lambda: emads.load_team(seats="all=scripted"),
    "overrides 'seed=1' must be a list": lambda: emads.train("x", overrides="seed=1"),
    "stages 'sft' must be a list": lambda: emads.train("x", stages="sft"),
    "roles 'cto' must be a list": lambda: emads.train("x", roles="cto"),
    "path 3 must name": lambda: emads.open_run(3),  # type: ignore[arg-type]
    "the test split is sealed": lambda: emads.generate("team", split="test"),
    "unknown split 'tset'; did you mean 'test'": lambda: emads.generate(
        "cto",
        split="tset",  # type: ignore[arg-type]
    ),
    "difficulty 11 must be 10 or less": lambda: emads.generate("cto", difficulties=[11]),
    "difficulties '12' must be a list": lambda: emads.generate("cto", difficulties="12"),  # type: ignore[arg-type]
    "count '3' must be": lambda: emads.generate("cto", "3"),  # type: ignore[arg-type]
    "seed -1 must be": lambda: emads.generate("cto", seed=-1),
}


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_wrong_arguments_are_user_errors(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(emads.UserError, match=message):
        WRONG_CALLS[message]()
    assert not list(tmp_path.iterdir())


def test_one_path_is_one_case_and_seats_may_be_a_dict() -> None:
    case = ROOT / "examples" / "city-permits.md"
    (by_path,) = emads.play(SCRIPTED, str(case))
    (by_list,) = emads.play(emads.load_team(seats={"all": "scripted"}), [case])
    assert by_path.case.key == by_list.case.key
    (again,) = emads.play(SCRIPTED, by_path.case)
    assert again.text == by_path.text


def test_overrides_may_be_a_dict(tmp_path: Path) -> None:
    given = {"sft.max_steps": 7, "grpo": {"learning_rate": 1e-05}, "name": "dict", "data.difficulties": [1]}
    run = emads.train(tmp_path / "run", overrides=given, stages=[])
    assert (run.config.sft.max_steps, run.config.grpo.learning_rate) == (7, 1e-05)
    assert (run.config.name, run.config.data.difficulties) == ("dict", (1,))


def test_a_notebook_cell_plays_inside_its_running_loop() -> None:
    async def cell() -> float:
        verdict = emads.play(SCRIPTED, 1)[0].verdict
        assert verdict is not None
        return verdict.reward

    assert asyncio.run(cell()) > 0


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import emads\n"
        "print('begun', flush=True)\n"
        "settings = {'num_workers': 1, 'model.hidden_size': 32, 'model.num_layers': 1}\n"
        "print(emads.train('run', overrides=settings, stages=['base']).is_done('base'))\n"
    )
    done = run_python("script.py", folder=tmp_path, timeout_s=300)
    assert done.stdout.split() == ["begun", "True"], done.stderr


def test_the_public_names_are_those_that_exist() -> None:
    for name in emads.__all__:
        assert getattr(emads, name) is not None
    assert set(emads.__all__) <= set(dir(emads))


def test_importing_emads_and_playing_scripted_cases_loads_no_torch() -> None:
    program = (
        "import sys\nimport emads\nemads.play(emads.load_team('scripted'), 1)\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"emads {emads.__version__}\n"


def test_every_package_says_that_it_is_typed() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)
    assert '"*" = ["py.typed"]' in (ROOT / "pyproject.toml").read_text()
