"""Configuration: strict, with a message that names the key, what is allowed and the nearest match."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from roles.errors import UserError
from scenarios.written.strict_yaml import parse_yaml
from training.config.loading import load_config, render_config, validate_config
from training.config.rl_config import GrpoConfig
from training.config.run_config import RunConfig, compute_digest, digest_values

# Not configs of runs: plans of ablations, and files of trl and accelerate. Their own tests read them.
OTHER_KINDS = {"ablations", "trl", "accelerate"}
CONFIGS = sorted(
    path
    for path in Path(__file__).parent.parent.parent.parent.glob("configs/**/*.yaml")
    if not OTHER_KINDS & set(path.parts)
)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_is_valid(path: Path) -> None:
    assert load_config(path).name


def test_the_demo_config_spells_out_the_defaults() -> None:
    assert load_config(None) == RunConfig()


def test_printed_config_loads_back_equal() -> None:
    config = load_config(None, ["model.num_heads=8", "sft.learning_rate=1e-5", "data.difficulties=[3, 1]"])
    assert config.model.num_heads == 8
    assert config.sft.learning_rate == 1e-5
    assert config.data.difficulties == (3, 1)
    assert validate_config(parse_yaml(render_config(config), "printed"), "printed") == config


def test_what_both_stages_of_rl_share_is_set_and_printed_once() -> None:
    config = load_config(
        None, ["rl.temperature=0.7", "rl.loss.clip_low=0.1", "grpo.loss.clip_low=0.3", "marl.loss.kind=grpo"]
    )
    assert (config.grpo.temperature, config.marl.temperature) == (0.7, 0.7)
    assert (config.grpo.loss.clip_low, config.marl.loss.clip_low) == (0.3, 0.1)
    assert (config.grpo.loss.kind, config.marl.loss.kind) == ("dapo", "grpo")
    text = render_config(config)
    printed = parse_yaml(text, "printed")
    assert printed["rl"]["temperature"] == 0.7
    assert "temperature" not in {*printed["grpo"], *printed["marl"]}
    assert printed["grpo"]["loss"] == {"kind": "dapo", "clip_low": 0.3}
    assert validate_config(printed, "printed") == config
    assert digest_values(printed) == compute_digest(config)


def test_printed_config_explains_every_field() -> None:
    lines = [line for line in render_config(RunConfig()).splitlines() if line]
    assert [line for line in lines if "  # " not in line or line.rstrip().endswith(("#", "None"))] == []


def test_overrides_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("grpo: {max_steps: 7, group_size: 4}\n")
    config = load_config(file, ["grpo.max_steps=9"])
    assert (config.grpo.max_steps, config.grpo.group_size) == (9, 4)
    assert config.marl == RunConfig().marl


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("grpo.group_sise=4", ["grpo.group_sise", "did you mean 'grpo.group_size'"]),
        ("marl.loss.clip_lwo=0.1", ["marl.loss.clip_lwo", "did you mean 'marl.loss.clip_low'"]),
        ("marl.clip_low=0.1", ["marl.clip_low", "did you mean 'marl.loss.clip_low'"]),
        ("grpo.guards.patience=2", ["grpo.guards", "set validate_every"]),
        ("marl.loss.clip_low=2", ["marl.loss.clip_low = 2", "--set marl.loss.clip_low=0.2"]),
        ("marl.loss=dapo", ['marl.loss = "dapo"', "section"]),
        ("rl.temprature=1", ["temprature", "did you mean 'temperature'"]),
        ("rl.group_size=4", ["config key of rl", "group_size"]),
        ("rl=3", ["rl = 3", "section"]),
        ("rl.loss.clip_low=2", ["grpo.loss.clip_low = 2"]),
        ("grop.max_steps=4", ["'grop'", "did you mean 'grpo'"]),
        (
            "grpo.group_size=1",
            ["grpo.group_size = 1", "greater than or equal to 2", "--set grpo.group_size=8"],
        ),
        ("grpo.group_size=true", ["grpo.group_size = true", "valid integer"]),
        ("grpo.group_size=4.5", ["grpo.group_size = 4.5", "valid integer"]),
        ("sft.optimizer=moun", ["sft.optimizer", "'moun'", "did you mean 'muon'"]),
        ("sft.learning_rate=.nan", ["sft.learning_rate = NaN", "finite"]),
        ("sft.learning_rate=.inf", ["sft.learning_rate = Infinity", "finite"]),
        ("model.preset=tinny", ["'tinny'", "did you mean 'tiny'", "hub id"]),
        ("model.hidden_size=130", ["hidden_size 130", "multiple of 2 * num_heads = 8"]),
        ("data.difficulties=[1, 11]", ["data.difficulties.1 = 11", "less than or equal to 10"]),
        ("data.difficulties=[]", ["data.difficulties = []", "at least 1"]),
        ("data.difficulties=[2, 2]", ["[2, 2] repeats"]),
        ("marl.report_sets=1", ["marl.report_sets = 1", "greater than or equal to 2"]),
        ("name=../x", ['name = "../x"', "letters, digits"]),
        ("sft=3", ["sft = 3", "section"]),
        ("seed.x=3", ["seed", "valid integer"]),
        ("seed", ["section.key=value"]),
        (".seed=1", ["section.key=value"]),
        ("sft.batch_size=[1", ["malformed YAML"]),
        ("sft.batch_size=!!binary aGk=", ["tags (!) are not allowed"]),
        ("sft={batch_size: &a 4, max_steps: *a}", ["anchors (&) and aliases (*) are not allowed"]),
    ],
)
def test_wrong_values_are_refused_with_key_and_remedy(assignment: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_config(None, [assignment])
    assert [part for part in parts if part not in str(caught.value)] == []


def test_hub_ids_are_accepted() -> None:
    assert load_config(None, ["model.preset=Qwen/Qwen2.5-0.5B-Instruct"]).model.preset.startswith("Qwen/")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("sft:\n  max_steps: 3\n max: 4\n", 3, "malformed YAML"),
        ("sft:\n  max_steps: 3\n  max_steps: 4\n", 3, "repeated"),
        ("name: x\n3: 4\n", 2, "not a name"),
        ("name: [x\nseed: 1\n", 2, "malformed YAML"),
        ("name: !!python/object:os.system x\n", 1, "malformed YAML"),
    ],
)
def test_malformed_yaml_names_file_and_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        load_config(file)
    assert f"{file}:{line}:" in str(caught.value)


@pytest.mark.parametrize("content", [b"- a\n", b"\xff\xfe\x00", b"just text", b"a: &x [*x]\n"])
def test_files_that_are_no_mapping_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError):
        load_config(file)


def test_missing_file_is_a_user_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load_config(tmp_path / "none.yaml")


def test_digest_is_equal_exactly_for_equal_configs() -> None:
    assert compute_digest(RunConfig()) == compute_digest(load_config())
    assert compute_digest(RunConfig()) != compute_digest(RunConfig(grpo=GrpoConfig(max_steps=61)))


def test_neutral_keys_do_not_change_the_digest_at_any_depth() -> None:
    config = RunConfig()
    assert compute_digest(config.changed(marl__memory__micro_batch_tokens=99)) == compute_digest(config)
    assert compute_digest(config.changed(marl__memory__row_layout="padded")) != compute_digest(config)


def test_no_section_has_more_than_30_keys() -> None:
    sizes = {model.__name__: len(model.model_fields) for model in list_models(RunConfig)}
    assert max(sizes.values()) <= 30, sizes


def list_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [field.annotation for field in model.model_fields.values()]
    sections = [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [model, *(found for section in sections for found in list_models(section))]


@pytest.mark.parametrize("model", list_models(RunConfig), ids=lambda model: model.__name__)
def test_every_model_is_strict_frozen_and_described(model: type[BaseModel]) -> None:
    flags = ("strict", "frozen")
    assert all(model.model_config.get(flag) is True for flag in flags)
    assert model.model_config.get("extra") == "forbid"
    plain = [f for f in model.model_fields.values() if not isinstance(f.default, BaseModel)]
    assert all(field.description for field in plain)


STREAMS = ("seed", "data.seed")


def list_counts(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from list_counts(value, f"{prefix}{name}.")
        elif type(value) is int:
            yield prefix + name


@pytest.mark.parametrize("key", sorted(set(list_counts(RunConfig().model_dump())) - set(STREAMS)))
def test_no_key_takes_a_number_that_would_never_end(key: str) -> None:
    """A trillion of anything eats the memory, or days, before somebody sees it."""
    with pytest.raises(UserError):
        load_config(None, [f"{key}={10**12}"])


@pytest.mark.parametrize(
    "batch",
    [
        ("grpo.prompts_per_step=10000", "grpo.group_size=1000", "grpo.max_steps=1"),
        ("marl.scenarios_per_step=10000", "marl.report_sets=100", "marl.decisions_per_set=8"),
    ],
)
def test_a_batch_that_fills_the_memory_is_refused(batch: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="completions, at most 1,000,000"):
        load_config(None, batch)
