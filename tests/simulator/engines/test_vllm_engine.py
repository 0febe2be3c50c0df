"""The vLLM engine on the tiny preset: real engine processes, adapters of five roles in one batch."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
import torch
from vllm_models import (
    END,
    NEEDS_VLLM,
    ROLES,
    Talk,
    complete,
    count_ties,
    list_adapters,
    load_adapters,
    make_adapter,
    make_base,
    make_prompts,
    vary_adapter,
)

from reliability.joint.scripted_models import next_token_logprobs
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.vllm.engine import VLLMEngine

pytestmark = NEEDS_VLLM


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {role: make_adapter(base, folder / role, seed) for seed, role in enumerate(ROLES)}


@pytest.fixture(scope="module")
def engine(base: Path, adapters: dict[str, Path]) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(base, end_id=END)
    for role, folder in adapters.items():
        engine.set_policy(role, folder, version="0")
    yield engine
    engine.close()


def mixed(count: int, seed: int = 0) -> list[Talk]:
    return [(ROLES[i % 5], prompt) for i, prompt in enumerate(make_prompts(count, seed))]


def test_greedy_tokens_and_logprobs_are_those_of_the_transformers_engine(
    engine: VLLMEngine, base: Path, adapters: dict[str, Path]
) -> None:
    model = load_adapters(base, adapters)
    plain = TransformersEngine(end_id=END)
    for role in ROLES:
        plain.set_policy(role, model, version="0", adapter=role)
    ties, differences = 0, []
    talks = mixed(40)
    for turn in range(3):  # append-only transcripts
        ours = asyncio.run(complete(engine, talks, name=f"turn{turn}"))
        theirs = asyncio.run(complete(plain, talks, name=f"turn{turn}"))
        going_on = []
        for (role, prompt), one, other in zip(talks, ours, theirs, strict=True):
            tie = count_ties(model, prompt, one.token_ids, other.token_ids, adapter=role)
            ties += tie
            if not tie:
                assert one.finish_reason == other.finish_reason
                differences += [abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)]
                going_on.append((role, (*prompt, *one.token_ids, 20 + turn, 30, 40)))
        talks = going_on
    print(f"greedy: {len(differences)} tokens, {ties} ties, mean logprob difference {fmean(differences):.2e}")
    assert ties <= 3
    assert fmean(differences) < 1e-5
    assert max(differences) < 1e-3
    assert len({one.token_ids for one in ours}) > 20  # not all the same


def test_sampled_logprobs_are_those_of_the_distribution_that_was_sampled(
    engine: VLLMEngine, base: Path, adapters: dict[str, Path]
) -> None:
    model = load_adapters(base, adapters)
    talks = mixed(15, seed=3)
    for (role, prompt), completion in zip(
        talks, asyncio.run(complete(engine, talks, temperature=0.7)), strict=True
    ):
        model.set_adapter(role)
        ids = (*prompt, *completion.token_ids)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].float()
        logprobs = torch.log_softmax(logits / 0.7, -1)
        for place, (token, logprob) in enumerate(
            zip(completion.token_ids, completion.logprobs, strict=True), len(prompt)
        ):
            assert logprob == pytest.approx(float(logprobs[place - 1, token]), abs=1e-3)


def test_sampled_frequencies_follow_the_distribution(
    engine: VLLMEngine, base: Path, adapters: dict[str, Path]
) -> None:
    model = load_adapters(base, {"cto": adapters["cto"]})
    prompt = make_prompts(1, seed=9)[0]
    drawn = asyncio.run(complete(engine, [("cto", prompt)] * 2000, temperature=1.0, tokens=1))
    expected = next_token_logprobs(model, prompt)[-1].exp()
    counts = torch.zeros(len(expected))
    for completion in drawn:
        counts[completion.token_ids[0]] += 1
    top = expected.topk(20).indices
    assert float(expected[top].sum()) > 0.3  # or the next line says little
    assert 0.5 * float((counts[top] / 2000 - expected[top]).abs().sum()) < 0.06


def test_finish_reasons_versions_and_limits(engine: VLLMEngine) -> None:
    completions = asyncio.run(complete(engine, mixed(60, seed=4), temperature=1.5, tokens=60))
    for completion in completions:
        stopped = completion.token_ids[-1] == END
        assert completion.finish_reason == ("stop" if stopped else "length")
        assert stopped or len(completion.token_ids) == 60
        assert END not in completion.token_ids[:-1]
        assert completion.policy_version == "0"
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}


def test_twenty_refreshes_answer_as_freshly_loaded_adapters_do(
    base: Path, adapters: dict[str, Path], tmp_path: Path
) -> None:
    prompts = make_prompts(4, seed=6)
    sets = [
        {
            role: vary_adapter(adapters[role], tmp_path / f"{role}-{turn}", 5 * turn + place)
            for place, role in enumerate(ROLES)
        }
        for turn in range(20)
    ]
    talks = [(role, prompt) for role in ROLES for prompt in prompts]
    refreshed = VLLMEngine(base, end_id=END)
    answers = []
    for turn, folders in enumerate(sets):
        for role, folder in folders.items():
            refreshed.set_policy(role, folder, version=f"{role}@{turn}")
        answers.append(asyncio.run(complete(refreshed, talks)))
        assert len(list_adapters(refreshed)) == 5  # old versions are gone
    assert refreshed.num_cached_tokens == 0  # a prompt met again under a new version is computed again
    again = asyncio.run(complete(refreshed, talks))
    assert refreshed.num_cached_tokens > 0  # but the cache is on
    refreshed.close()
    fresh = VLLMEngine(base, end_id=END, options={"enable_prefix_caching": False, "max_cpu_loras": 8})
    ties = 0
    for turn, folders in enumerate(sets):
        for role, folder in folders.items():
            fresh.set_policy(f"{role}-{turn}", folder, version=f"{role}@{turn}")
        expected = asyncio.run(complete(fresh, [(f"{role}-{turn}", prompt) for role, prompt in talks]))
        model = load_adapters(base, folders)
        for (role, prompt), one, other in zip(talks, answers[turn], expected, strict=True):
            assert one.policy_version == f"{role}@{turn}"
            ties += count_ties(model, prompt, one.token_ids, other.token_ids, adapter=role)
    fresh.close()
    print(f"refreshes: {20 * len(talks)} completions, {ties} ties")
    assert ties <= 4
    assert [one.token_ids for one in again] == [one.token_ids for one in answers[-1]]
    assert len({one.token_ids for turn in answers for one in turn}) > 200  # refreshes change answers
