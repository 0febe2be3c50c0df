"""The table of stages: sources lead to the base, and settings count for what comes after them alone."""

from pathlib import Path

import pytest

from emads.cli.train import LABEL_STAGES
from emads.seats import STAGES as SCHEDULE
from evaluation.scoring.outcomes import FEEDBACK_STAGES
from roles.errors import UserError
from simulator.export.atomic_files import claim_folder
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.runs.run_folder import Run
from training.stages.table import STAGES, list_stages, prefix_digest, trace_stage, train_stage


def test_every_stage_but_those_on_labels_leads_back_to_the_base() -> None:
    for name in list_stages("schedule", "role_control", "team_control"):
        assert [stage.name for stage in trace_stage(name)][-1] == "base"
    assert [stage.name for stage in trace_stage("single_grpo")] == ["single_grpo", "single_sft", "base"]
    assert {section for stage in STAGES.values() for section in stage.sections} <= set(RunConfig.model_fields)


def test_the_command_line_and_the_evaluation_name_the_stages_of_the_table() -> None:
    assert list_stages("schedule") == list(SCHEDULE)
    assert list_stages("labels") == list(LABEL_STAGES)
    assert [name for name in LABEL_STAGES if name != "reward"] == list(FEEDBACK_STAGES)


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("data.seed=1", set(STAGES) - {*LABEL_STAGES}),
        ("sft.max_steps=7", set(STAGES) - {"base", *LABEL_STAGES}),
        ("grpo.max_steps=7", set(STAGES) - {"base", "sft", "single_sft", *LABEL_STAGES}),
        ("marl.max_steps=7", {"marl", "sft_instead", "grpo_instead", "sft_best_habit", "single_grpo"}),
        ("team_reward.consensus=0.5", {"marl", "single_grpo"}),
        ("evaluation.greedy=false", set()),
        ("sft.micro_batch_size=1", set()),
    ],
)
def test_a_setting_changes_the_stages_that_it_decides_and_those_behind_them(
    setting: str, changed: set[str]
) -> None:
    one, other = load_config(None, []), load_config(None, [setting])
    names = [name for name in STAGES if name not in LABEL_STAGES]
    assert {name for name in names if prefix_digest(one, name) != prefix_digest(other, name)} == changed


def test_a_stage_that_another_process_trains_is_refused(tmp_path: Path) -> None:
    """Two that published one checkpoint would take away each other's unfinished files."""
    run = Run.create(tmp_path / "run", RunConfig())
    folder = run.path / "stages" / "sft" / "cto"
    with (
        claim_folder(folder, "run folder"),
        pytest.raises(UserError, match=r"another process is writing to .*sft/cto"),
    ):
        train_stage(run.path, "sft", "cto")
    with pytest.raises(UserError, match="no sound base weights"):  # the claim has ended
        train_stage(run.path, "sft", "cto")
