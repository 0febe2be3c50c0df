"""A team leaves its run as a folder: it says the same there and in other programs, and damage is named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from exported_teams import make_random_run, say_here, say_in_plain_libraries
from safetensors.torch import load_file, save_file

from emads import load_team
from emads.cli import main
from emads.seats.players import RunPlayer, read_player
from evaluation.summary.run_summary import FORMAT
from roles.errors import UserError
from roles.registry import ROLES
from training.export.export import export_team, list_serve_commands
from training.export.team_folder import MOST_RECORD_BYTES, open_team_folder
from training.models.base_model import load_checkpoint
from training.runs.checkpoints import publish
from training.runs.run_folder import Run

LORA = ("model.adapter=lora", "model.lora_rank=4")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_random_run(tmp_path_factory.mktemp("runs") / "full")


@pytest.fixture(scope="module")
def exported(run: Run) -> Path:
    return export_team(run, run.path.parent / "exported").path


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_random_run(tmp_path_factory.mktemp("runs") / "lora", *LORA)
    return export_team(made, made.path.parent / "exported", with_merged=True).path


def test_the_team_says_the_same_from_its_folder(run: Run, exported: Path) -> None:
    said = say_here(run.path)
    assert say_here(exported) == said
    assert len({tuple(words) for words in said.values()}) == len(ROLES)  # every role by its own weights


def test_adapters_say_the_same_from_their_folder(adapters: Path) -> None:
    said = say_here(adapters.parent / "lora")
    assert say_here(adapters) == said
    assert len({tuple(words) for words in said.values()}) == len(ROLES)


@pytest.mark.process
def test_plain_transformers_loads_every_role_and_says_the_same(exported: Path) -> None:
    models = {role: (f"roles/{role}", None) for role in ROLES}
    assert say_in_plain_libraries(exported, models) == say_here(exported)


@pytest.mark.process
def test_plain_peft_loads_every_adapter_and_merged_model_and_says_the_same(adapters: Path) -> None:
    said = say_here(adapters)
    assert say_in_plain_libraries(adapters, {role: ("base", f"adapters/{role}") for role in ROLES}) == said
    assert say_in_plain_libraries(adapters, {role: (f"merged/{role}", None) for role in ROLES}) == said


def test_a_merged_model_holds_the_sum_of_base_and_adapter(adapters: Path) -> None:
    name = "model.layers.0.self_attn.q_proj"
    base = load_file(adapters / "base/model.safetensors")[f"{name}.weight"]
    factors = load_file(adapters / "adapters/cto/adapter_model.safetensors")
    a, b = (factors[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
    merged = load_file(adapters / "merged/cto/model.safetensors")[f"{name}.weight"]
    scale = 32 / 4  # lora_alpha / lora_rank
    assert (merged - (base + scale * (b @ a))).abs().max() < 1e-5
    assert (merged - base).abs().max() > 0.1


def test_the_folder_holds_data_alone_and_no_path_of_the_machine(exported: Path, adapters: Path) -> None:
    for folder in (exported, adapters):
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert {file.suffix for file in files} <= {".json", ".jinja", ".md", ".safetensors"}
        for file in files:
            assert str(folder.parent).encode() not in file.read_bytes(), file
    assert json.loads((adapters / "adapters/cto/adapter_config.json").read_text())[
        "base_model_name_or_path"
    ] == ("./base")


def test_one_shared_adapter_serves_all_roles(tmp_path: Path) -> None:
    run = make_random_run(tmp_path / "run", *LORA, "model.adapter_sharing=shared")
    folder = export_team(run, tmp_path / "to")
    assert list(folder.adapters) == ["team"]
    assert say_here(folder.path) == say_here(run.path)
    assert "--lora-modules team=to/adapters/team" in list_serve_commands(folder.record, "to")[0][1]


def test_whole_weights_that_all_roles_share_are_exported_once(tmp_path: Path) -> None:
    run = make_random_run(tmp_path / "run", "model.adapter_sharing=shared")
    folder = export_team(run, tmp_path / "to")
    assert [place.name for place in (folder.path / "roles").iterdir()] == ["team"]
    assert say_here(folder.path) == say_here(run.path)
    assert list_serve_commands(folder.record, "to")[0][1].startswith("vllm serve to/roles/team ")


def test_the_command_for_vllm_names_base_rank_and_every_adapter(adapters: Path) -> None:
    commands = dict(list_serve_commands(open_team_folder(adapters).record, "x"))
    assert commands["vLLM, all roles on one server"] == (
        "vllm serve x/base --served-model-name base --enable-lora --max-lora-rank 8 --max-loras 5"
        " --lora-modules cto=x/adapters/cto coo=x/adapters/coo risk=x/adapters/risk cost=x/adapters/cost"
        " reconcile=x/adapters/reconcile"
    )
    assert "vllm serve x/merged/cto" in commands["vLLM, a server per role"]


def test_the_card_holds_the_scores_of_the_exported_stage(run: Run, tmp_path: Path) -> None:
    scores = {
        "mean": 0.4321,
        "low": 0.4,
        "high": 0.46,
        "n": 600,
        "greedy": 0.5,
        "greedy_low": 0.4,
        "greedy_high": 0.6,
    }
    other = scores | {"mean": 0.9}
    summary = {
        "format": FORMAT,
        "roles": {"cto": {"marl": scores, "sft": other}},
        "team": {"marl": scores, "sft": other},
        "gates": [],
        "seed": 0,
        "wall_s": 1.0,
        "versions": {},
    }
    run.write_json("summary.json", summary)
    try:
        path = export_team(run, tmp_path / "to").path
    finally:
        (run.path / "summary.json").unlink()
    card = (path / "README.md").read_text()
    assert "| team reward | 600 | 0.432 | 0.400 to 0.460 | 0.500 |" in card
    assert "0.900" not in card
    header = yaml.safe_load(card.split("---")[1])
    metrics = {
        one["dataset"]["config"]: one["metrics"][0]["value"] for one in header["model-index"][0]["results"]
    }
    assert metrics == {"team": 0.4321, "cto": 0.4321}


def test_a_run_that_was_not_evaluated_says_so(exported: Path) -> None:
    assert "was not evaluated" in (exported / "README.md").read_text()
    assert open_team_folder(exported).record.evaluation is None


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _add(name: str, content: bytes = b"x") -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return damage


def _edit_manifest(find: str, replace: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "MANIFEST.json"
        file.write_text(file.read_text().replace(find, replace))

    return damage


def _truncate(folder: Path) -> None:
    file = folder / "roles/coo/tokenizer.json"
    file.write_bytes(file.read_bytes()[:-10])


def _swap(folder: Path) -> None:
    one, other = folder / "roles/cto/model.safetensors", folder / "roles/coo/model.safetensors"
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights": (lambda folder: _flip(folder / "roles/cto/model.safetensors"), "roles/cto/model.safetensors"),
    "record": (lambda folder: _flip(folder / "team.json"), "team.json"),
    "card": (lambda folder: _flip(folder / "README.md"), "README.md"),
    "missing": (lambda folder: (folder / "roles/risk/config.json").unlink(), "roles/risk/config.json"),
    "short": (_truncate, "roles/coo/tokenizer.json"),
    "swapped": (_swap, "model.safetensors"),
    "pickle": (_add("roles/cto/pytorch_model.bin"), "pytorch_model.bin"),
    "code": (_add("roles/cto/modeling_x.py"), "modeling_x.py"),
    "foreign": (_add("roles/cto/other.safetensors"), "other.safetensors"),
    "no manifest": (lambda folder: (folder / "MANIFEST.json").unlink(), "no MANIFEST.json"),
    "manifest": (lambda folder: _flip(folder / "MANIFEST.json"), "MANIFEST.json"),
    "traversal": (_edit_manifest("roles/cto/config.json", "../../cto/config.json"), "MANIFEST.json"),
    "link": (lambda folder: (folder / "roles/x.json").symlink_to("/etc/hostname"), "x.json"),
    "link to a folder": (lambda folder: (folder / "more").symlink_to("/etc"), "more"),
    "huge record": (lambda folder: os.truncate(folder / "team.json", MOST_RECORD_BYTES + 1), "team.json"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_folder_is_refused_by_the_name_of_what_is_wrong(
    kind: str, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "copy", symlinks=True))
    assert main(["verify", str(folder)]) == 0
    damage, name = DAMAGES[kind]
    damage(folder)
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 2
    assert name in capsys.readouterr().err
    with pytest.raises(UserError):
        load_team(folder)


def test_a_manifest_that_was_made_anew_does_not_let_a_record_lie(exported: Path, tmp_path: Path) -> None:
    """Whoever changes files can write a manifest for them: what the record claims must still be there."""

    def write(folder: Path) -> None:
        shutil.copytree(exported, folder, dirs_exist_ok=True)
        (folder / "MANIFEST.json").unlink()
        (folder / "roles/cto/config.json").unlink()

    identity = json.loads((exported / "MANIFEST.json").read_text())["run"]
    publish(tmp_path, "team", write, run=identity, step=0)
    with pytest.raises(UserError, match=r"roles/cto/config\.json is missing"):
        open_team_folder(tmp_path / "team")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "emads-team/2"),
        ("roles", {"cto": "../../etc"}),
        ("roles", dict.fromkeys(ROLES, "../x")),
        ("stage", "base"),
        ("surprise", 1),
        ("config", {"model": {"preset": 5}}),
    ],
)
def test_a_record_of_another_form_is_refused(key: str, value: object, exported: Path, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        shutil.copytree(exported, folder, dirs_exist_ok=True)
        (folder / "MANIFEST.json").unlink()
        record = json.loads((folder / "team.json").read_text())
        (folder / "team.json").write_text(json.dumps({**record, key: value}))

    identity = json.loads((exported / "MANIFEST.json").read_text())["run"]
    publish(tmp_path, "team", write, run=identity, step=0)
    with pytest.raises(UserError, match=r"team\.json"):
        open_team_folder(tmp_path / "team")


def test_files_that_a_hub_adds_are_not_read(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "copy"))
    _add(".gitattributes")(folder)
    _add(".cache/huggingface/.gitignore")(folder)
    assert open_team_folder(folder).record.name == "random"


def test_weights_that_claim_other_shapes_are_a_users_error(exported: Path, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        shutil.copytree(exported, folder, dirs_exist_ok=True)
        (folder / "MANIFEST.json").unlink()
        file = folder / "roles/cto/model.safetensors"
        save_file({name: one[:1].clone() for name, one in load_file(file).items()}, file)

    identity = json.loads((exported / "MANIFEST.json").read_text())["run"]
    publish(tmp_path, "team", write, run=identity, step=0)
    with pytest.raises(UserError, match="cannot load model"):
        load_checkpoint(tmp_path / "team/roles/cto")


def test_nothing_is_written_over(run: Run, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists"):
        export_team(run, exported)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UserError, match="exists"):
        export_team(run, tmp_path / "mine")
    with pytest.raises(UserError, match="name the folder"):
        export_team(run, tmp_path / "a b")
    with pytest.raises(UserError, match="nothing to merge"):
        export_team(run, tmp_path / "to", with_merged=True)
    with pytest.raises(UserError, match="no sound sft weights"):
        export_team(run, tmp_path / "to", stage="sft")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_seat_and_every_verb_take_the_folder(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_player(f"run:{exported}") == RunPlayer(exported, "marl")
    assert load_team(exported).label == "marl team of exported exported"
    mixed = load_team(seats=["all=scripted", f"cto=run:{exported}"])
    assert mixed.draw_case(0).key == load_team(exported).draw_case(0).key
    with pytest.raises(UserError, match="after marl, not after sft"):
        load_team(exported, stage="sft")
    assert main(["simulate", str(exported), "--index", "1"]) == 0
    assert "marl team of exported exported" in capsys.readouterr().out


def test_evaluate_scores_the_folder(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(exported), "--count", "2", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").is_dir()
    open_team_folder(exported)  # nothing was written into it


@pytest.mark.parametrize(("alpha", "is_rounded"), [(8, True), (12, False)])
def test_adapters_beside_a_bfloat16_base_are_rounded_where_that_changes_nothing(
    tmp_path: Path, alpha: int, is_rounded: bool
) -> None:
    settings = (*LORA, "model.dtype=bfloat16", "model.lora_rank=4", f"model.lora_alpha={alpha}")
    run = make_random_run(tmp_path / "run", *settings)
    exported = export_team(run, tmp_path / "exported").path
    stored = load_file(exported / "adapters" / "cost" / "adapter_model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16 if is_rounded else torch.float32}
    assert say_here(exported) == say_here(run.path)


def test_adapters_of_a_4_bit_base_stay_in_float32(tmp_path: Path) -> None:
    """They are multiplied so: their base's numbers are no floats to round to."""
    settings = ("model.adapter=qlora", "model.dtype=bfloat16", "model.lora_rank=4", "model.lora_alpha=8")
    exported = export_team(make_random_run(tmp_path / "run", *settings), tmp_path / "exported").path
    stored = load_file(exported / "adapters" / "cost" / "adapter_model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.float32}
