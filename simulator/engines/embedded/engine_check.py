"""A check of the embedded engine as policies are served: what it samples against the models' own passes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from roles.errors import InfrastructureError, UserError
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.own_pass import SAMPLED, difference_of, long_text, tolerance

SAID = 3  # tokens of the message that follows a first turn

Talk = tuple[list[int], list[Completion]]


def check_engine(models: Mapping[str, Any]) -> float:
    """Largest difference of a sampled token's log-probability between the engine and the models' own passes.

    Every policy continues a text that is longer than the model's attention window, where that is feasible
    (`own_pass.long_text`), and then once more after a further message.

    Raises:
        UserError: it differs, or the engine cannot serve the models.
    """
    engine, worst = TransformersEngine(end_id=None), 0.0
    texts = {policy: long_text(model, number) for number, (policy, model) in enumerate(models.items())}
    with ExitStack() as stack:
        for model in {id(model): model for model in models.values()}.values():
            stack.enter_context(restored(model))
        try:
            for policy, model in models.items():
                engine.set_policy(policy, model, version=f"{policy}@check")
            with ThreadPoolExecutor(1) as thread:  # the caller may be in a loop of its own
                talks = thread.submit(asyncio.run, _talk(engine, texts)).result()
        except InfrastructureError as error:
            message = f"the embedded engine cannot serve these models ({error}); use another one"
            raise UserError(message) from None
        for policy, (ids, said) in talks.items():
            model = models[policy].eval()
            adapter = adapter_of(model, policy)
            if adapter is not None:
                model.set_adapter(adapter)
            difference = difference_of(model, ids, _places(ids, said))
            if not difference <= tolerance(model):
                raise UserError(
                    f"{model.config.model_type}: the embedded engine samples {policy} by log-probabilities"
                    f" that are off by {difference:.2g} from the model's own pass over a text of"
                    f" {len(ids)} tokens; use engine.name vllm, or another model"
                )
            worst = max(worst, difference)
    return worst


@contextmanager
def restored(model: Any) -> Iterator[None]:
    """Give the model its mode, and its weights what of them is trained, back after the block."""
    was_training = model.training
    learns = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    try:
        yield
    finally:
        model.train(was_training)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in learns)


async def _talk(engine: TransformersEngine, texts: Mapping[str, Sequence[int]]) -> dict[str, Talk]:
    """Let all policies at once continue their texts, twice; each whole text, and what was sampled of it."""

    async def ask(policy: str, ids: list[int]) -> Completion:
        sampling = Sampling(max_completion_tokens=SAMPLED)
        return await engine.complete(
            CompletionRequest(policy=policy, session=policy, prompt_ids=tuple(ids), sampling=sampling)
        )

    async def talk(policy: str) -> Talk:
        ids = list(texts[policy])
        first = await ask(policy, ids)
        ids += [*first.token_ids, *ids[:SAID]]
        second = await ask(policy, ids)
        return [*ids, *second.token_ids], [first, second]

    found = await asyncio.gather(*(talk(policy) for policy in texts))
    return dict(zip(texts, found, strict=True))


def _places(ids: Sequence[int], said: Sequence[Completion]) -> dict[int, float]:
    """Place in the text of each sampled token, and its log-probability."""
    first, second = said
    end = len(ids) - len(second.token_ids)
    start = end - SAID - len(first.token_ids)
    return {
        **dict(enumerate(first.logprobs, start)),
        **dict(enumerate(second.logprobs, end)),
    }
