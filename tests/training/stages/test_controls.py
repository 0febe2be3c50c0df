"""Controls of joint training: equal transcripts, the single agent's demonstrations, stages that go on."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from planned_faults import PlannedFaultError, parse_faults, plan_faults
from tiny_models import make_tiny_base, tiny_chat

from emads.commands.evaluate import run_demo
from roles.team import RECONCILER
from scenarios.base import Style, ToolCall
from scenarios.team import generate
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.game import PlanGame
from scenarios.team.single import SINGLE, SingleGame
from simulator.reward import TeamRewardWeights
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.data.demonstrations import demonstration_row, supervised_rows
from training.data.single_agent import single_family, single_role
from training.runs.run_folder import Run
from training.stages.controls import (
    count_grpo_steps,
    count_joint_transcripts,
    count_sft_steps,
    count_single_grpo_steps,
    count_single_sft_steps,
)

WEIGHTS = TeamRewardWeights()


def test_controls_learn_from_as_many_transcripts_as_joint_training() -> None:
    config = load_config(
        None,
        (
            "marl.max_steps=10", "marl.scenarios_per_step=8", "marl.report_sets=4",
            "marl.decisions_per_set=2", "sft.batch_size=16", "grpo.max_steps=7",
            "grpo.prompts_per_step=4", "grpo.group_size=8",
        ),
    )  # fmt: skip
    assert count_joint_transcripts(config, "cto") == 320
    assert count_joint_transcripts(config, RECONCILER) == 640
    assert (count_sft_steps(config, "cto"), count_sft_steps(config, RECONCILER)) == (20, 40)
    assert (count_grpo_steps(config, "cto"), count_grpo_steps(config, RECONCILER)) == (10, 20)
    assert count_single_grpo_steps(config) == 27
    twice = load_config(None, ("marl.updates_per_batch=2", "marl.max_steps=10", "sft.batch_size=16"))
    once = load_config(None, ("marl.max_steps=10", "sft.batch_size=16"))
    assert count_sft_steps(twice, "cto") == 2 * count_sft_steps(once, "cto")


def test_the_single_agent_learns_from_as_many_transcripts_as_each_role() -> None:
    per_role = load_config(None, ("sft.max_steps=100",))
    shared = load_config(None, ("sft.max_steps=100", "model.adapter_sharing=shared"))  # five roles take turns
    assert (count_single_sft_steps(per_role), count_single_sft_steps(shared)) == (100, 20)


@pytest.mark.parametrize("style", ["short", "full"])
def test_the_single_agent_is_shown_the_meetings_of_the_team(style: Style) -> None:
    family = single_family(style, WEIGHTS)
    for index in range(12):
        scenario = family.generate("train", 0, index, 1 + index % 3)
        case = generate("train", 0, index, 1 + index % 3)
        steps = family.demonstrate(scenario, random.Random(0))
        meeting = hold_meeting(PlanGame(case, style, 0), with_tools=False)
        assert meeting.decision is not None
        plan = json.loads(steps[-1].text.partition("\n")[2])
        assert (plan["option"], list(plan["parts"])) == (meeting.decision["option"], meeting.decision["fund"])
        for step in steps[:-1]:
            assert step.call is not None
            family.call_tool(scenario, step.call)  # no tool refuses what experts ask
        assert family.verify(scenario, json.dumps(family.solve(scenario))).reward == 1
        assert family.certify(scenario)[0] == family.certify(scenario)[1]


def test_the_sheet_says_what_reconcile_reads_of_the_same_offers() -> None:
    case = generate("train", 0, 3, 2)
    game, family = PlanGame(case, "short"), single_family("short", WEIGHTS)
    scenario = family.generate("train", 0, 3, 2)
    call = family.demonstrate(scenario, random.Random(0))[0].call
    assert call is not None
    assert family.call_tool(scenario, call) == game.write_decision_brief(hold_meeting(game).reports)
    refused: list[dict[str, Any]] = [
        {}, {"parts": {"legal": []}}, {"parts": {"cto": ["ZZ"]}}, {"parts": {"cto": "F"}},
    ]  # fmt: skip
    for wrong in refused:
        with pytest.raises(Exception, match=r"sheet|seats are|no part|list of codes"):
            family.call_tool(scenario, ToolCall(name="sheet", arguments=wrong))


def test_the_single_agent_trains_on_the_prompt_that_it_plays() -> None:
    chat, family, role = tiny_chat(), single_family("short", WEIGHTS), single_role("short")
    scenario = family.generate("test", 0, 5, 2)
    game = SingleGame(generate("test", 0, 5, 2), "short")
    row = demonstration_row(family, scenario, chat, {SINGLE: role})
    opening = chat.open(game.prompt_role, game.write_brief(), with_tools=True)
    assert row.token_ids[: len(opening)] == opening
    assert sum(row.loss_mask[: len(opening)]) == 0


def test_the_upper_control_shows_one_pair_of_habits_alone() -> None:
    chat = tiny_chat()

    def first_words(habits: tuple[str, str] | None) -> set[str]:
        rows = supervised_rows(
            RunConfig(), "cto", chat, num_rows=12, first_row=0, seat_share=1.0, habits=habits
        )
        own = [tuple(t for t, bit in zip(row.token_ids, row.loss_mask, strict=True) if bit) for row in rows]
        return {chat.decode(ids).partition("\n")[0] for ids in own}

    assert first_words(("measured", "exact")) == {"measured"}
    assert len(first_words(None)) > 2


SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=64", "sft.max_steps=4", "sft.batch_size=4", "grpo.max_steps=1",
    "grpo.prompts_per_step=2", "grpo.group_size=2", "marl.max_steps=1", "marl.scenarios_per_step=2",
    "marl.report_sets=2", "marl.decisions_per_set=2", "marl.guards.validation_scenarios=2",
    "data.difficulties=[1]", "grpo.max_completion_tokens=16", "marl.max_completion_tokens=16",
    "evaluation.num_role_scenarios=2", "evaluation.num_team_scenarios=6",
    "evaluation.num_tries=2",
)  # fmt: skip


@pytest.mark.slow
def test_a_demo_with_controls_goes_on_after_a_fault_and_shows_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, path = load_config(None, SETTINGS), tmp_path / "run"
    make_tiny_base(Run.create(path, config).path)
    plan_faults(parse_faults(["raise@single_grpo:step:1"]))
    with pytest.raises(PlannedFaultError):
        run_demo(path, config, 1, True, True)
    plan_faults([])
    run = Run.open(path)
    assert run.is_done("single_sft/single")
    assert not run.is_done("single_grpo/single")
    run_demo(path, config, 1, True, True)
    summary = json.loads((path / "summary.json").read_text())
    controls = {"sft_instead", "grpo_instead", "sft_best_habit", "single_sft", "single_grpo"}
    assert controls <= set(summary["team"])
    assert {f"marl-{one}" for one in controls - {"single_sft"}} <= set(summary["team"]["paired"])
    assert {"gap", "hidden", "passes"} <= set(summary["joint"])
    assert summary["joint"]["passes"]["marl"]["n"] == 6
