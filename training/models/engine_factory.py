"""One factory for what completes prompts: in simulation, in evaluation and in training.

    with open_engine(config.engine, end_id=chat.end_id, seed=seed, base=folder) as engine:
        engine.set_policy("cto", model, version="cto@17")  # again after each update of the weights

vLLM takes a minute or so to start: keep one engine open for as many steps as there are.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, get_args

import torch
from transformers import AutoConfig

from roles.errors import UserError, unknown
from roles.team import RECONCILER
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.vllm.engine import VLLMEngine
from simulator.engines.vllm.library import INSTALL, can_serve
from simulator.engines.vllm.options import share_gpu
from simulator.engines.vllm.server_client import VLLMServerEngine
from training.config.model_config import ModelConfig
from training.config.run_config import EngineConfig, RunConfig
from training.learner.ranks import ONE_RANK, Ranks
from training.models.base_model import PRETRAINED, SMOLLM2
from training.models.shapes import find_shape
from training.models.weights import BASE, find_weights
from training.runs.run_folder import Run

MOST_EMBEDDED = 500_000_000  # weights that the embedded engine plays on a GPU without being asked for by name
REQUEST_TIMEOUT_S = 600.0  # after which a call of vLLM counts as failed
RANK_STRIDE = 1_000_003  # between the engine seeds of two ranks


def name_engine(engine: EngineConfig, model: ModelConfig) -> EngineConfig:
    """The engine's section with a name of its own in place of `auto`.

    On a GPU it is vLLM where that is installed and knows the model; else the embedded engine.

    Raises:
        UserError: the embedded engine on a GPU for a model of more than MOST_EMBEDDED weights.
    """
    if engine.name != "auto":
        return engine
    if not torch.cuda.is_available() or model.preset == "tiny":
        return engine.changed(name="transformers")
    if model.adapter != "qlora" and can_serve(_find_architecture(model)):
        return engine.changed(name="vllm")
    try:
        size = find_shape(model).num_parameters
    except UserError:  # a name of the hub
        size = 0
    if size > MOST_EMBEDDED:
        raise UserError(
            f"{model.preset} has {size / 1e9:.1f}e9 weights; the embedded engine reaches 1 to 4 % of the"
            f" sampling speed that a GPU's memory allows (at 0.5e9 weights on an H100): {INSTALL};"
            " or name it, engine.name=transformers"
        )
    return engine.changed(name="transformers")


def _find_architecture(model: ModelConfig) -> str:
    """The model's class in transformers: of a preset, else by its config.json; "" where there is none."""
    if model.preset == SMOLLM2 or model.preset in PRETRAINED:
        return "LlamaForCausalLM" if model.preset == SMOLLM2 else "Qwen2ForCausalLM"
    try:
        return str((AutoConfig.from_pretrained(model.preset).architectures or [""])[0])
    except (OSError, ValueError):
        return ""


@contextmanager
def open_engine(
    config: EngineConfig,
    *,
    end_id: int,
    seed: int,
    base: Path | None,
    shared: Mapping[str, Any] | None = None,
) -> Iterator[PolicyEngine]:
    """The engine that the config names, with no policy yet; its processes and connections end with the block.

    `base`: the folder of the model that adapters were trained on, tokenizer included; None where every
    policy has full weights. Only vLLM reads it.
    `shared`: how a client of running servers stands to those of the other ranks.

    Raises:
        UserError: vLLM is not installed, or an unknown option.
    """
    if config.name == "auto":
        raise ValueError("engine `auto` has no name yet: see name_engine")
    if config.name == "transformers":
        yield TransformersEngine(end_id=end_id, seed=seed)
        return
    common: dict[str, Any] = {"end_id": end_id, "request_timeout_s": REQUEST_TIMEOUT_S}
    engine: VLLMEngine | VLLMServerEngine
    if config.name == "vllm_server":
        store = Path(config.adapter_folder) if config.adapter_folder else None
        engine = VLLMServerEngine(config.servers, store=store, **common, **(shared or {}))
    else:
        engine = VLLMEngine(base, seed=seed, options=config.vllm, **common)
    with closing(engine):
        yield engine


def serve(
    run: Run, models: Mapping[str, Any], stage: str, *, end_id: int
) -> AbstractContextManager[PolicyEngine]:
    """The run's engine, serving every role by its own weights of a stage; raises as `open_engine`."""
    base = find_engine_base(run, name_engine(run.config.engine, run.config.model))
    return serve_models(run.config, models, stage, end_id=end_id, base=base)


def find_engine_base(run: Run, engine: EngineConfig) -> Path | None:
    """The folder of the run's base where the engine reads it, else None."""
    return None if engine.name == "transformers" else find_weights(run, BASE, RECONCILER)


@contextmanager
def serve_models(
    config: RunConfig,
    models: Mapping[str, Any],
    stage: str,
    *,
    end_id: int,
    base: Path | None,
    engine: EngineConfig | None = None,
) -> Iterator[PolicyEngine]:
    """An engine that serves each role by its model of a stage, as `engine` (None: the config) names it.

    `base`, and what it raises: as of `open_engine`.
    """
    chosen = name_engine(engine or config.engine, config.model)
    chosen = _share_gpu(config, chosen, num_models=len(models))
    with open_engine(chosen, end_id=end_id, seed=config.seed, base=base) as opened:
        for role, model in models.items():
            opened.set_policy(role, model, version=f"{role}@{stage}")
        yield opened


@contextmanager
def open_rollouts(
    run: Run, *, end_id: int, num_models: int = 1, max_staleness: int = 0, ranks: Ranks = ONE_RANK
) -> Iterator[PolicyEngine | None]:
    """The engine that a stage samples its rollouts on, from its first step to its last.

    None for the embedded engine on a CPU: it starts at once, so that training makes one for every batch.
    On a GPU it is kept with the decode steps that it has recorded. Every rank has an engine of its own; of
    clients of running servers the first rank's alone hands over adapters. `num_models`: that play, each with
    its own weights. `max_staleness`: steps that the stage's rollouts may be behind the weights.
    Raises as `open_engine`.
    """
    config = name_engine(run.config.engine, run.config.model)
    if config.name == "transformers":
        is_kept = torch.cuda.is_available()
        yield TransformersEngine(end_id=end_id, seed=run.config.seed) if is_kept else None
        return
    with ranks.main_process_first():
        base = find_weights(run, BASE, RECONCILER)
    shared = {
        "name": ranks.first(token_hex(4)),
        "is_loader": ranks.rank == 0,
        "spare_versions": max_staleness + 1 if ranks.size > 1 else 0,
    }
    config = _share_gpu(run.config, config, num_models=num_models, is_training=True, sleeps=not max_staleness)
    seed = run.config.seed + RANK_STRIDE * ranks.rank  # ranks of one seed would draw the same noise
    with open_engine(config, end_id=end_id, seed=seed, base=base, shared=shared) as engine:
        yield engine
        ranks.wait()  # nobody takes its adapters away from ranks that still play


def release_engine_memory(engine: PolicyEngine | None) -> None:
    """Let an engine beside the learner give its memory back until it is called again."""
    if isinstance(engine, VLLMEngine):
        engine.sleep()
    elif isinstance(engine, TransformersEngine):
        engine.rest()


def _share_gpu(
    config: RunConfig,
    engine: EngineConfig,
    *,
    num_models: int,
    is_training: bool = False,
    sleeps: bool = False,
) -> EngineConfig:
    """The engine's section with what the run says of adapters and of who else is on the GPU."""
    if engine.name != "vllm":
        return engine
    options = share_gpu(
        engine.vllm,
        lora_rank=config.model.lora_rank,
        dtype=config.model.dtype,
        num_engines=num_models if config.model.adapter == "none" else 1,
        beside_learner=is_training,
        sleeps=sleeps,
    )
    return engine.changed(vllm=options)


def choose_engine(run: RunConfig, name: str | None) -> EngineConfig:
    """The run's engine, or the one named on the command line.

    Raises:
        UserError: no such engine, or servers that the config does not name; or as `name_engine`.
    """
    config = run.engine
    if name is None or name == config.name:
        return name_engine(config, run.model)
    known = list(get_args(EngineConfig.model_fields["name"].annotation))
    if name not in known:
        raise unknown("engine", name, known)
    if name == "vllm_server":
        raise UserError(
            "engine 'vllm_server' needs addresses: train the run with --set engine.name=vllm_server"
            " --set engine.servers=[http://127.0.0.1:8000]"
        )
    return name_engine(EngineConfig.model_validate({"name": name}), run.model)
