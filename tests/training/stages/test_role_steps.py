"""Roles whose GRPO takes another number of steps than the others'."""

from pathlib import Path

import pytest
from tiny_models import make_untrained_run

from emads.commands.stages import train_stage
from roles.errors import UserError
from training.config.loading import load_config
from training.planning.workload import list_phases
from training.runs.run_folder import Run
from training.stages.sft import count_control_steps
from training.stages.take_over import prefix_digest, take_over

GRPO = (
    "sft.max_steps=1", "sft.batch_size=2", "grpo.prompts_per_step=1", "grpo.group_size=2", "grpo.max_turns=2",
    "grpo.guards.alarm_every=0", "grpo.max_steps=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("donor") / "run"
    run = Run.open(make_untrained_run(path, *GRPO, "grpo.role_steps={cost: 3}"))
    for stage in ("sft", "grpo"):
        train_stage(run, stage, ("cost", "cto"))
    return run


def test_a_role_takes_its_own_steps(donor: Run) -> None:
    assert [row.step for row in donor.read_metrics("grpo/cost")] == [1, 2, 3]
    assert [row.step for row in donor.read_metrics("grpo/cto")] == [1]


def test_another_run_takes_over_the_roles_whose_steps_are_the_same(donor: Run, tmp_path: Path) -> None:
    made = Run.open(make_untrained_run(tmp_path / "made", *GRPO, "grpo.role_steps={cost: 3, cto: 2}"))
    run = Run.create(tmp_path / "run", made.config)
    assert take_over(donor, run) == ["base", "sft/cto", "sft/cost", "grpo/cost"]


def test_joint_weights_depend_on_every_role() -> None:
    usual, longer = (load_config(None, settings) for settings in ((), ("grpo.role_steps={cto: 120}",)))
    digests = [[prefix_digest(one, "grpo", role) for role in ("cto", "coo")] for one in (usual, longer)]
    assert digests[0][0] != digests[1][0]
    assert digests[0][1] == digests[1][1]
    assert prefix_digest(usual, "marl") != prefix_digest(longer, "marl")


def test_what_is_compared_with_a_role_has_its_steps() -> None:
    config = load_config(
        None,
        ("grpo.max_steps=10", "grpo.role_steps={cto: 30}", "grpo.prompts_per_step=2", "grpo.group_size=8",
         "sft.batch_size=4", "sft.control_fraction=1.0"),
    )  # fmt: skip
    assert [count_control_steps(config, role) for role in ("cto", "coo")] == [120, 40]


def test_a_plan_counts_every_roles_steps() -> None:
    sampled = [
        list_phases(load_config(None, ("grpo.max_steps=10", *further)))[1].sampled
        for further in ((), ("grpo.role_steps={cto: 20}",), ("grpo.role_steps={cto: 0}",))
    ]
    assert sampled[1] - sampled[0] == pytest.approx(sampled[0] - sampled[2])
    assert 0 < sampled[1] - sampled[0] < sampled[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["grpo.role_steps={ctoo: 5}"], "grpo.role_steps.*did you mean 'cto'"),
        (["grpo.role_steps={cto: -1}"], "role_steps"),
        (["grpo.role_steps={cto: 900000}"], "grpo.role_steps.cto = 900000"),
        (
            ["grpo.role_steps={cto: 5}", "model.adapter=lora", "model.adapter_sharing=shared"],
            "leave them out",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, settings)
