"""The vLLM engine on a real pretrained model: SmolLM2-135M-Instruct, in float32 as it is."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm_models import NEEDS_VLLM, complete, count_ties

from roles.registry import ROLES
from scenarios.team import PlanGame
from scenarios.written.written_case import read_case
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from simulator.engines.vllm.engine import VLLMEngine
from training.models.base_model import prepare_smollm2

pytestmark = NEEDS_VLLM
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepare_smollm2()


@pytest.fixture(scope="module")
def chat(folder: Path) -> HFChat:
    return HFChat(AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def talks(chat: HFChat) -> list[tuple[str, tuple[int, ...]]]:
    """What the seats of a written case read."""
    game = PlanGame(read_case(EXAMPLES / "city-permits.md"))
    return [
        (seat, chat.open(game.prompt_role(seat), game.write_report_brief(seat), with_tools=False))
        for seat in game.case.seats
    ]


@pytest.fixture(scope="module")
def engine(folder: Path, chat: HFChat) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(folder, end_id=chat.end_id, options={"max_model_len": 2048})
    for role in ROLES:
        engine.set_policy(role, None, version="smollm2@0")
    yield engine
    engine.close()


def test_greedy_tokens_are_those_of_the_transformers_engine(
    engine: VLLMEngine, folder: Path, chat: HFChat, talks: list[tuple[str, tuple[int, ...]]]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    plain = TransformersEngine(end_id=chat.end_id)
    for role in ROLES:
        plain.set_policy(role, model, version="0")
    ours = asyncio.run(complete(engine, talks, tokens=24))
    theirs = asyncio.run(complete(plain, talks, tokens=24))
    ties, differences = 0, []
    for (_, prompt), one, other in zip(talks, ours, theirs, strict=True):
        tie = count_ties(model, prompt, one.token_ids, other.token_ids)
        ties += tie
        if not tie:
            differences += [abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)]
    print(
        f"SmolLM2: {len(differences)} tokens, {ties} ties, mean logprob difference {fmean(differences):.2e}"
    )
    assert ties <= 1
    assert fmean(differences) < 1e-4
    asyncio.run(complete(engine, talks[:1], tokens=1))
    assert engine.num_cached_tokens > 0  # a prompt that was read before is not computed again
