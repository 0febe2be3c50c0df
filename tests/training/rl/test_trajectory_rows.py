"""What is trained on is what was sampled: 1,000 tool trajectories whose ids no tokenizer would write so."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from tiny_models import DIFFICULTIES, tiny_chat

from roles.registry import ROLES
from scenarios.rewards import is_parseable
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import SoloEpisode, play_solos
from simulator.engines.base import Completion, CompletionRequest, Sampling
from training.data.demonstrations import role_scenario
from training.learner.rows import make_row

NUM_PER_ROLE = 200


class SpellingEngine:
    """Says what the experts say, but spells every second turn letter by letter; keeps what it sampled."""

    def __init__(self, role: str, scenarios: Sequence[object]) -> None:
        self._expert = oracle_solo(scenarios)  # type: ignore[arg-type]
        self.sampled: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        self.num_uncommon = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        chat, rng = tiny_chat(), random.Random(f"{request.session}/{len(request.prompt_ids)}")
        text = self._expert(chat.decode(request.prompt_ids))
        ids = chat.encode(text)
        if rng.random() < 0.5:
            parts = text.replace("<tool_call>", "\0<tool_call>\0").replace("</tool_call>", "\0</tool_call>\0")
            spelt = [
                one
                for part in parts.split("\0")
                for one in ([part] if part.endswith("tool_call>") else list(part))
            ]
            ids = tuple(i for piece in spelt for i in chat.encode(piece))
        self.num_uncommon += ids != chat.encode(text)
        ids = (*ids, chat.end_id)
        self.sampled.setdefault(request.session, []).append((request.prompt_ids, ids))
        logprobs = tuple(-rng.random() for _ in ids)
        return Completion(token_ids=ids, logprobs=logprobs, finish_reason="stop", policy_version="x@0")

    def end_session(self, session: str) -> None:
        """Nothing is kept between turns."""


def play(role: str) -> tuple[SpellingEngine, list[SoloEpisode]]:
    scenarios = [role_scenario(role, "train", 0, index, DIFFICULTIES) for index in range(NUM_PER_ROLE)]
    engine = SpellingEngine(role, scenarios)
    episodes = asyncio.run(
        play_solos(
            scenarios,
            policy=role,
            engine=engine,
            chat=tiny_chat(),
            sampling=Sampling(max_completion_tokens=10_000),
            stream="rows",
            max_turns=12,
        )
    )
    return engine, episodes


@pytest.mark.parametrize("role", sorted(ROLES))
def test_rows_are_the_sampled_ids_and_none_is_tokenised_again(role: str) -> None:
    """200 trajectories of each of five roles: ids, mask and logprobs against the engine's own record."""
    engine, episodes = play(role)
    assert engine.num_uncommon > NUM_PER_ROLE // 2  # tokenising the text again would give other ids
    assert len(episodes) == NUM_PER_ROLE
    untooled = [episode.scenario for episode in episodes if len(episode.trajectory.turns) == 1]
    assert len(untooled) <= NUM_PER_ROLE // 100  # tools were used, but where no plan can be run none may be
    assert all(scenario.truth.get("escalate") for scenario in untooled)
    for episode in episodes:
        turns, row = engine.sampled[episode.trajectory.session], make_row(episode.trajectory, 1.0)
        last, answer = turns[-1]
        assert row.token_ids == last + answer
        own = {i for asked, said in turns for i in range(len(asked), len(asked) + len(said))}
        assert row.loss_mask == tuple(int(i in own) for i in range(len(row.token_ids)))
        assert all((value != 0.0) == (i in own) for i, value in enumerate(row.sampling_logprobs))
        assert is_parseable(episode.verdict)  # spelt uncommonly or not, the words are the expert's
