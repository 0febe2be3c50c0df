"""Exports the team of a run's stage as a self-contained folder, and loads the folder's models.

The folder names digests of the game that the team was trained for: its graphs, what seats read, what
verifiers say. Each is taken from behaviour on pinned cases, so it changes when that changes and at no other
time.
"""

import hashlib
import json
import math
import random
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from evaluation.scoring.baselines import check_reports, play_experts
from evaluation.summary.run_summary import SUMMARY_FILE, read_summary
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.base import Style
from scenarios.registry import families
from scenarios.team import PlanGame, TeamScenario, generate, judge_decision
from simulator.engines.adapter_names import SINGLE
from simulator.export.atomic_files import encode_json, write_atomic
from simulator.governance.governed_graph import open_full
from simulator.graph.team_graph import list_edges, open_team
from simulator.reward import TeamRewardWeights, combine_parts
from training.config.model_config import ModelConfig
from training.config.run_config import EngineConfig, RunConfig
from training.export.team_folder import (
    ADAPTERS,
    BASE,
    CARD,
    FULL,
    GGUF,
    MERGED,
    RECORD,
    SUFFIXES,
    Stage,
    TeamFolder,
    TeamRecord,
    Versions,
    WeightsSource,
    name_identity,
    open_team_folder,
)
from training.models.adapters import WEIGHTS, load_adapters, owner_of, owners_of
from training.models.base_model import (
    HUB_ID,
    PRETRAINED,
    SMOLLM2,
    load_checkpoint,
    load_frozen_base,
    load_model,
    load_tokenizer,
)
from training.models.weights import Team, find_weights
from training.runs.checkpoints import MANIFEST, is_checkpoint_name, publish, step_in_name
from training.runs.run_folder import Run, find_versions

LICENSE = "apache-2.0"
TAGS = ("emads", "multi-agent", "reinforcement-learning", "rlvr", "decision-making")
DATASET = "emads generated company decision cases"
FIRST_PORT = 8000
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
)
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, which vLLM makes room for


def render_card(record: TeamRecord) -> str:
    """Return the card's whole text, header included."""
    found = record.evaluation or {"team": None, "roles": {}}
    figures = ({"team": found["team"]} if found["team"] else {}) | found["roles"]
    text = TEMPLATES.get_template("card.md.j2").render(
        record=record,
        titles={name: role.title for name, role in ROLES.items()},
        commands=list_serve_commands(record, "."),
        figures=figures,
    )
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="emads",
            dataset_name=DATASET,
            dataset_config=name,
            dataset_split="test",
            metric_type="mean_reward",
            metric_name="mean sealed reward",
            metric_value=round(scores["mean"], 4),
        )
        for name, scores in figures.items()
    ]
    header = ModelCardData(
        license=LICENSE,
        language=["en"],
        library_name="peft" if record.weights == ADAPTERS else "transformers",
        base_model=record.base_model,
        pipeline_tag="text-generation",
        tags=list(TAGS),
        model_name=record.name,
        eval_results=results or None,
    )
    return str(ModelCard(f"---\n{header.to_yaml()}\n---\n\n{text}", ignore_metadata_errors=False))


def list_serve_commands(record: TeamRecord, folder: str) -> list[tuple[str, str]]:
    """Return (what it starts, command) for every server that can take this folder.

    At each server a model has the name of its role, or `team` where all roles share one.
    """
    found: list[tuple[str, str]] = []
    if record.weights == ADAPTERS:
        rank = record.config.model.lora_rank
        most = next((known for known in VLLM_RANKS if known >= rank), rank)
        modules = " ".join(f"{owner}={folder}/{ADAPTERS}/{owner}" for owner in record.owners)
        command = (
            f"vllm serve {folder}/{BASE} --served-model-name base --enable-lora --max-lora-rank {most}"
            f" --max-loras {len(record.owners)} --lora-modules {modules}"
        )
        found.append(("vLLM, all roles on one server", command))
    ports = list(enumerate(record.owners, start=FIRST_PORT))
    if record.weights == FULL or record.merged:
        home = FULL if record.weights == FULL else MERGED
        what = "a server per role" if len(record.owners) > 1 else "one server for all roles"
        lines = [
            f"vllm serve {folder}/{home}/{owner} --served-model-name {owner} --port {port}"
            for port, owner in ports
        ]
        found.append((f"vLLM, {what}", "\n".join(lines)))
    if record.gguf:
        home = f"{folder}/{GGUF}"
        models = {owner: f"{home}/{owner}.gguf" for owner in record.owners}
        if record.weights == ADAPTERS:
            models = {owner: f"{home}/base.gguf --lora {home}/{owner}.lora.gguf" for owner in record.owners}
        lines = [f"llama-server -m {models[owner]} --alias {owner} --port {port}" for port, owner in ports]
        found.append(("llama.cpp", "\n".join(lines)))
    return found


PINNED = ((0, 1), (1, 5))  # index and difficulty of validation cases of seed 0
PLAYERS = (("measured", "exact"), (None, None))  # habits of the experts that play them


def describe_versions(model: ModelConfig) -> Versions:
    """Return the digests of this installation, for a model's style of prompts and its questions."""
    style = model.prompts
    cases = [generate("validation", 0, index, difficulty) for index, difficulty in PINNED]
    return Versions(
        emads=find_versions()["emads"] or "unknown",
        graph=_digest([list_edges(open_team()), list_edges(open_full())]),
        prompts=_digest([_list_prompts(case, PlanGame(case, style, model.questions)) for case in cases]),
        verifier=_digest([_list_verdicts(style), *(_judge_plays(case) for case in cases)]),
    )


def find_changes(then: Versions, now: Versions) -> list[str]:
    """Name the parts of the game that differ between two installations; `emads` alone is no difference."""
    return [part for part in ("graph", "prompts", "verifier") if getattr(then, part) != getattr(now, part)]


def _list_prompts(case: TeamScenario, game: PlanGame) -> list[Any]:
    play = play_experts(*PLAYERS[0])(case, random.Random(0))
    reports = {
        seat: game.read_report(seat, report.model_dump_json()) for seat, report in play.reports.items()
    }
    decision = play.decision.model_dump(mode="json")
    texts: list[Any] = [game.write_decision_brief(reports)]
    for seat in (*case.seats, RECONCILER):
        role = game.prompt_role(seat)
        texts.append([role.title, role.mandate, *(tool.as_chat_tool() for tool in role.tools)])
    for seat in case.seats:
        texts += [game.write_report_brief(seat), game.write_vote_brief(decision, seat, reports)]
    return texts


def _list_verdicts(style: Style) -> list[Any]:
    """Return what each role's verifier says of its baselines, and the formula of the team reward."""
    said: list[Any] = [combine_parts(0.5, 0.75, 0.25, 1.0, TeamRewardWeights())]
    for name in ROLES:
        family = families(style)[name]
        scenario = family.generate("validation", 0, 0, 1)
        answers = [play(scenario, random.Random(0)) for play in family.baselines.values()]
        said += [asdict(family.verify(scenario, answer)) for answer in ("", *answers)]
    return said


def _judge_plays(case: TeamScenario) -> list[Any]:
    plays = [play_experts(*habits)(case, random.Random(0)) for habits in PLAYERS]
    return [asdict(judge_decision(case, check_reports(case, play.reports), play.decision)) for play in plays]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=list).encode()).hexdigest()


ADAPTER_CONFIG = "adapter_config.json"
BASE_IN_FOLDER = "./base"  # as an adapter names it: found from the folder itself


def export_team(
    run: Run, target: Path, *, stage: Stage = "marl", with_merged: bool = False, with_gguf: bool = False
) -> TeamFolder:
    """Write the run's team after `stage` as a new folder; a kill leaves nothing under its name.

    `with_merged`: also base and adapter of each owner as one model. `with_gguf`: also files for llama.cpp.

    Raises:
        UserError: no sound weights of the stage, `target` is taken or no name for a folder, disk full,
            or weights that cannot be merged or written as GGUF.
    """
    check_target(target)
    if with_gguf and find_spec("gguf") is None:
        raise UserError("--gguf needs the package gguf; pip install 'emads[gguf]'")
    config, owners = run.config, owners_of(run.config.model, TEAM_ROLES)
    sources = {owner: find_weights(run, stage, owner) for owner in owners}
    has_adapters = config.model.adapter != "none"
    rounded = _multiplies_in_bfloat16(config.model)
    if with_merged and not has_adapters:
        raise UserError(f"{run.path} trains full weights, one model per role: there is nothing to merge")
    if with_merged and config.model.adapter == "qlora":
        raise UserError(
            "adapters on a 4-bit base cannot be merged without loss; export them without --merged"
        )
    record = TeamRecord(
        format="emads-team/1",
        name=config.name,
        stage=stage,
        weights="adapters" if has_adapters else "roles",
        roles={role: owner_of(config.model, role) for role in TEAM_ROLES},
        merged=with_merged,
        gguf=with_gguf,
        base_model=_name_base(config),
        versions=describe_versions(config.model),
        source=WeightsSource(
            run=config.name, digest=run.digest, steps={owner: path.name for owner, path in sources.items()}
        ),
        config=_without_machine(config),
        evaluation=read_evaluation(run, stage),
    )
    base = find_weights(run, BASE, RECONCILER) if has_adapters else None

    def write(folder: Path) -> None:
        if base is not None:
            _copy_model(base, folder / BASE)
        for owner, source in sources.items():
            if base is None:
                _copy_model(source, folder / FULL / owner)
            else:
                _copy_adapter(source, folder / ADAPTERS / owner, rounded=rounded)
            if with_merged:
                _write_merged(folder / BASE, folder / ADAPTERS / owner, folder / MERGED / owner)
        if with_gguf:
            from training.export.gguf_files import write_gguf  # its package is an extra

            write_gguf(folder, record)
        (folder / RECORD).write_bytes(encode_json(record.model_dump(mode="json")))
        (folder / CARD).write_text(render_card(record))

    step = step_in_name(target) or 0
    publish(target.parent, target.name, write, run=name_identity(record), step=step)
    return open_team_folder(target)


def check_target(target: Path) -> None:
    """Refuse, with a UserError, a place that is taken or has no name for a folder."""
    if not is_checkpoint_name(target.name):
        raise UserError(f"--to {target}: name the folder with letters, digits, _ . @ and - alone")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"--to {target} exists; choose another folder, or delete it")


def read_evaluation(run: Run, stage: str) -> dict[str, Any] | None:
    """Return the sealed scores of a stage, of the team (None where it has none) and of each role."""
    if not (run.path / SUMMARY_FILE).is_file():
        return None
    summary = read_summary(run.path)
    team = summary["team"].get(stage)
    roles = {role: stages[stage] for role, stages in summary["roles"].items() if stage in stages}
    return {"team": team, "roles": roles} if team or roles else None


def _name_base(config: RunConfig) -> str | None:
    """Return the hub's name of the base; a local folder has none."""
    preset = config.model.preset
    if preset == SMOLLM2:
        return HUB_ID
    if Path(preset).exists() or preset.startswith(("/", ".", "~")):
        return None
    return PRETRAINED.get(preset, preset if "/" in preset else None)


def _without_machine(config: RunConfig) -> RunConfig:
    """Return the config without addresses and paths of the machine that trained it."""
    changed: dict[str, Any] = {"engine": EngineConfig()}
    if "/" in config.model.preset and _name_base(config) is None:
        changed["model"] = config.model.model_copy(update={"preset": BASE_IN_FOLDER})
    return config.model_copy(update=changed)


def _copy_model(source: Path, target: Path) -> None:
    """Copy a model's folder, which must hold data alone, without the manifest of its checkpoint."""
    target.mkdir(parents=True)
    for file in sorted(source.iterdir()):
        if file.name == MANIFEST:
            continue
        if file.suffix not in SUFFIXES:
            raise UserError(f"{file} is no file of a model that is exported (safetensors and text alone)")
        shutil.copyfile(file, target / file.name)


def _multiplies_in_bfloat16(model: ModelConfig) -> bool:
    """Return whether rounding adapters to bfloat16 leaves every weight that is multiplied as it was.

    They are scaled in float32 and then rounded to the base's precision: a power of two changes no digit.
    Beside a base in 4 bits they are multiplied in float32.
    """
    is_power_of_two = math.frexp(model.lora_alpha / model.lora_rank)[0] == 0.5
    return model.adapter == "lora" and model.dtype == "bfloat16" and is_power_of_two


def _copy_adapter(source: Path, target: Path, *, rounded: bool) -> None:
    """Copy an adapter, `rounded` to bfloat16 in half the size."""
    target.mkdir(parents=True)
    if rounded:
        weights = {name: weight.bfloat16() for name, weight in load_file(source / WEIGHTS).items()}
        save_file(weights, target / WEIGHTS, metadata={"format": "pt"})
    else:
        shutil.copyfile(source / WEIGHTS, target / WEIGHTS)
    settings: Mapping[str, Any] = json.loads((source / ADAPTER_CONFIG).read_text())
    write_atomic(
        target / ADAPTER_CONFIG, encode_json({**settings, "base_model_name_or_path": BASE_IN_FOLDER})
    )


def _write_merged(base: Path, adapter: Path, target: Path) -> None:
    """Write the model that `base` with `adapter` is, in the base's precision, and its tokenizer."""
    model: Any = load_adapters(load_model(base, dtype="auto"), {SINGLE: adapter})
    model.merge_and_unload(safe_merge=True).save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)


def load_exported_models(folder: TeamFolder) -> tuple[Team, PreTrainedTokenizerBase]:
    """Return every role's model and the tokenizer of all; roles with adapters share one model.

    Raises:
        UserError: weights that cannot be loaded.
    """
    record = folder.record
    if folder.base is not None:
        base, tokenizer = load_frozen_base(folder.base, record.config.model)
        model = cast(PreTrainedModel, load_adapters(base, folder.adapters))
        return dict.fromkeys(record.roles, model), tokenizer
    loaded = {
        role: load_checkpoint(path) for role in record.roles if (path := folder.model_of(role)) is not None
    }
    return {role: model for role, (model, _) in loaded.items()}, next(iter(loaded.values()))[1]
