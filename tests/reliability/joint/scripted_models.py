"""Tiny models that speak scripted words, so that an untrained team earns rewards that can be learnt from."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from roles.registry import ROLES
from scenarios.team import PlayableCase
from simulator.agents.scripted_policies import baseline_team, oracle_team
from simulator.chat import Chat
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from training.config.model_config import ModelConfig
from training.config.run_config import RunConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer

VOTES = ('{"vote": "accept"}', '{"vote": "object"}')
SHAPE = ModelConfig(hidden_size=32, num_layers=1, num_heads=2, intermediate_size=48)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tiny preset's tokenizer, trained on few scenarios."""
    return train_tokenizer(corpus(RunConfig(), 40), 512)


def make_models(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """One model of random weights per role."""
    return {role: build_tiny_model(SHAPE, tokenizer, seed) for seed, role in enumerate(ROLES)}


def half_expert_team(scenarios: Sequence[PlayableCase]) -> dict[str, SeededPolicy]:
    """Experts half of the time, well-formed nonsense otherwise: rewards differ within every group."""
    expert, nonsense = oracle_team(scenarios), baseline_team(scenarios, "random")

    def mix(role: str) -> SeededPolicy:
        def speak(transcript: str, rng: random.Random) -> str:
            if rng.random() < 0.5:
                return expert[role](transcript, rng)
            said = nonsense[role](transcript, rng)
            return rng.choice(VOTES) if said.startswith('{"vote"') else said

        return speak

    return {role: mix(role) for role in ROLES}


def next_token_logprobs(model: Any, token_ids: tuple[int, ...]) -> torch.Tensor:
    """Plain forward pass: row i is the distribution of token i + 1, shape (tokens, vocabulary)."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([token_ids])).logits[0].float()
    return torch.log_softmax(logits, -1)


class ScriptedModelEngine:
    """Scripted words, with the log-probabilities that the policy's own model gives them.

    Stands where a TransformersEngine does: an untrained model says nothing that could be rewarded.
    """

    def __init__(
        self, speakers: Mapping[str, SeededPolicy], *, chat: Chat, end_id: int, seed: int = 0
    ) -> None:
        self.end_id = end_id
        self._script = ScriptedEngine(chat, seeded=speakers, seed=seed)
        self.models: dict[str, tuple[Any, str, str | None]] = {}
        self.calls: list[tuple[CompletionRequest, Completion]] = []

    def set_policy(self, policy: str, model: Any, *, version: str, adapter: str | None = None) -> None:
        self.models[policy] = (model, version, adapter)

    async def complete(self, request: CompletionRequest) -> Completion:
        spoken = await self._script.complete(request)
        model, version, adapter = self.models[request.policy]
        if adapter is not None:
            model.set_adapter(adapter)
        ids, start = request.prompt_ids + spoken.token_ids, len(request.prompt_ids)
        logprobs = next_token_logprobs(model, ids)
        completion = Completion(
            token_ids=spoken.token_ids,
            logprobs=tuple(float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))),
            finish_reason=spoken.finish_reason,
            policy_version=version,
        )
        self.calls.append((request, completion))
        return completion

    def end_session(self, session: str) -> None:
        """Nothing is kept between turns."""
