"""The public Python API: its examples run, it imports nothing heavy, and it says its mistakes in one line."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import emads
from emads.cli import main
from roles.errors import UserError
from scenarios.team import TeamScenario

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads")


@pytest.mark.parametrize("module", ["emads.api", "emads.teams", "emads.played_case"])
def test_the_examples_of_the_public_functions_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_scripted_experts_play_generated_and_written_cases() -> None:
    team = emads.load_team("scripted")
    generated = emads.generate("team", 3, split="test", seed=4)
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
    monkeypatch.setattr("training.stages.base.TOKENIZER_SCENARIOS", 10)
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
