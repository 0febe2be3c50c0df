"""The embedded engine against plain forward passes of the same model."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from roles.errors import InfrastructureError
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine

END = 1


@pytest.fixture(params=[False, True], ids=["growing", "fixed"], autouse=True)
def _shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for decode steps in shapes that grow and in those that are recorded on a GPU."""
    defaults = dict(TransformersEngine.__init__.__kwdefaults__ or {}, fixed_shapes=request.param)
    monkeypatch.setattr(TransformersEngine.__init__, "__kwdefaults__", defaults)


def make_model(seed: int = 0, key_heads: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=61,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=key_heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=END,
            bos_token_id=None,
        )
    )
    for parameter in model.parameters():  # larger logits, so that the distribution is far from uniform
        if parameter.ndim == 2:
            parameter.data.mul_(6.0)
    model.eval()
    return model


def make_engine(model: LlamaForCausalLM, **kwargs: Any) -> TransformersEngine:
    engine = TransformersEngine(end_id=END, **kwargs)
    engine.set_policy("cto", model, version="cto@0")
    return engine


def logits_of(model: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([ids])).logits[0].float()
    return logits


Talk = tuple[list[int], list[tuple[int, Completion]]]


async def talk(
    engine: TransformersEngine, session: str, prompt: list[int], turns: int, sampling: Sampling
) -> Talk:
    """Several turns of one transcript; returns the ids and each completion with its prompt length."""
    ids = list(prompt)
    completions: list[tuple[int, Completion]] = []
    for turn in range(turns):
        request = CompletionRequest(policy="cto", session=session, prompt_ids=tuple(ids), sampling=sampling)
        completion = await engine.complete(request)
        completions.append((len(ids), completion))
        ids += [*completion.token_ids, 7 + turn, 9, 11]  # an observation
    engine.end_session(session)
    return ids, completions


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 30, (count,), generator=generator).tolist()
    return [torch.randint(2, 61, (n,), generator=generator).tolist() for n in lengths]


def play(
    engine: TransformersEngine, temperature: float, count: int, turns: int = 3, tokens: int = 12
) -> list[Talk]:
    async def run() -> list[Talk]:
        sampling = Sampling(temperature=temperature, max_completion_tokens=tokens)
        return await asyncio.gather(
            *(talk(engine, f"s{i}", prompt, turns, sampling) for i, prompt in enumerate(prompts(count)))
        )

    return asyncio.run(run())


def test_greedy_multi_turn_equals_plain_forward_passes() -> None:
    model = make_model()
    for ids, completions in play(make_engine(model), 0.0, 9):
        expected = logits_of(model, ids).argmax(-1).tolist()
        for start, completion in completions:
            assert list(completion.token_ids) == expected[start - 1 : start - 1 + len(completion.token_ids)]


def test_a_head_of_its_own_for_every_query_is_computed_as_well() -> None:
    model = make_model(key_heads=4)
    for ids, completions in play(make_engine(model), 0.0, 5):
        expected = logits_of(model, ids).argmax(-1).tolist()
        for start, completion in completions:
            assert list(completion.token_ids) == expected[start - 1 : start - 1 + len(completion.token_ids)]


def test_logprobs_are_those_of_the_model_at_the_sampling_temperature() -> None:
    model = make_model()
    for ids, completions in play(make_engine(model), 0.7, 7):
        logprobs = torch.log_softmax(logits_of(model, ids) / 0.7, -1)
        for start, completion in completions:
            for offset, (token, logprob) in enumerate(
                zip(completion.token_ids, completion.logprobs, strict=True)
            ):
                assert logprob == pytest.approx(float(logprobs[start - 1 + offset, token]), abs=2e-5)


def test_samples_do_not_depend_on_batch_mates_or_row_limit() -> None:
    model = make_model()
    together = play(make_engine(model), 1.0, 12)
    narrow = play(make_engine(model, max_rows=3), 1.0, 12)
    assert [ids for ids, _ in together] == [ids for ids, _ in narrow]


def test_equal_prompts_are_computed_once() -> None:
    """Six transcripts of three prompts; three turns each."""
    model, engine = make_model(), make_engine(make_model())
    texts = [[*range(20, 30), 5, 6, 7], [*range(20, 30), 8], [40, 41, 42]]
    fed: list[torch.Size] = []
    engine._lanes[0].model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: fed.append(kwargs["input_ids"].shape), with_kwargs=True
    )

    async def run() -> list[Talk]:
        sampling = Sampling(temperature=0.0, max_completion_tokens=4)
        return await asyncio.gather(*(talk(engine, f"s{i}", texts[i % 3], 3, sampling) for i in range(6)))

    for ids, completions in asyncio.run(run()):
        expected = logits_of(model, ids).argmax(-1).tolist()
        for start, completion in completions:
            assert list(completion.token_ids) == expected[start - 1 : start - 1 + len(completion.token_ids)]
    assert fed[0] == (3, 12)


def test_many_rows_attend_in_several_products_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[list[int]]:
        engine, sampling = make_engine(make_model()), Sampling(temperature=0.0, max_completion_tokens=4)

        async def talk_all() -> list[Talk]:
            texts = [[*range(20, 30), *range(2, 2 + i)] for i in range(9)]
            return await asyncio.gather(
                *(talk(engine, f"s{i}", text, 3, sampling) for i, text in enumerate(texts))
            )

        return [ids for ids, _ in asyncio.run(talk_all())]

    whole = run()
    monkeypatch.setattr("simulator.engines.embedded.grouped_attention.MOST_SCORES", 1000)
    assert run() == whole


def test_seed_changes_samples_and_same_seed_repeats_them() -> None:
    model = make_model()
    first, again = play(make_engine(model, seed=1), 1.0, 6), play(make_engine(model, seed=1), 1.0, 6)
    other = play(make_engine(model, seed=2), 1.0, 6)
    assert [ids for ids, _ in first] == [ids for ids, _ in again]
    assert [ids for ids, _ in first] != [ids for ids, _ in other]


def test_sampled_frequencies_follow_the_distribution() -> None:
    model = make_model()
    engine = make_engine(model, max_rows=2048)

    async def run() -> list[Completion]:
        sampling = Sampling(temperature=1.0, max_completion_tokens=1)
        request = [
            CompletionRequest(policy="cto", session=f"s{i}", prompt_ids=(5, 8, 13), sampling=sampling)
            for i in range(2000)
        ]
        return await asyncio.gather(*(engine.complete(r) for r in request))

    counts = torch.zeros(61)
    for completion in asyncio.run(run()):
        counts[completion.token_ids[0]] += 1
    expected = torch.softmax(logits_of(model, [5, 8, 13])[-1], -1)
    # total variation of 2,000 draws over 61 outcomes stays below 0.1 for the right distribution
    assert 0.5 * (counts / 2000 - expected).abs().sum() < 0.1


def test_finish_reasons_and_limits() -> None:
    model = make_model()
    for _, completions in play(make_engine(model), 1.0, 20, turns=1, tokens=40):
        for _, completion in completions:
            stopped = completion.token_ids[-1] == END
            assert completion.finish_reason == ("stop" if stopped else "length")
            assert stopped or len(completion.token_ids) == 40
            assert END not in completion.token_ids[:-1]


def test_unknown_policy_is_a_named_failure() -> None:
    engine = make_engine(make_model())
    request = CompletionRequest(policy="coo", session="s", prompt_ids=(3,), sampling=Sampling())
    with pytest.raises(InfrastructureError, match="coo"):
        asyncio.run(engine.complete(request))


def test_a_model_that_fails_rejects_its_calls_and_nothing_hangs() -> None:
    class Broken(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("out of memory")

    model = make_model()
    model.__class__ = Broken
    engine = make_engine(model)
    request = CompletionRequest(policy="cto", session="s", prompt_ids=(3, 4), sampling=Sampling())
    with pytest.raises(InfrastructureError, match="out of memory"):
        asyncio.run(asyncio.wait_for(engine.complete(request), 10))


@pytest.mark.parametrize(
    ("prompt", "match"),
    [((), "is empty"), ((3,) * 512, "512 tokens: the model reads 511"), ((3, 61), "an id that the model")],
)
def test_prompts_that_the_model_cannot_read_are_refused_by_name_and_cost_nobody_else(
    prompt: tuple[int, ...], match: str
) -> None:
    engine = make_engine(make_model())
    sampling = Sampling(temperature=0.0, max_completion_tokens=3)

    async def run() -> list[Completion | BaseException]:
        calls = [
            engine.complete(CompletionRequest(policy="cto", session=name, prompt_ids=ids, sampling=sampling))
            for name, ids in (("bad", prompt), ("good", (3, 4)))
        ]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    bad, good = asyncio.run(run())
    with pytest.raises(InfrastructureError, match=match):
        raise bad  # type: ignore[misc]
    assert isinstance(good, Completion)


def test_a_log_probability_that_is_not_finite_is_a_failure_and_no_sample() -> None:
    model = make_model()
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    request = CompletionRequest(policy="cto", session="s", prompt_ids=(3, 4), sampling=Sampling())
    with pytest.raises(InfrastructureError, match="cto@0 gave a log-probability that is not finite"):
        asyncio.run(asyncio.wait_for(make_engine(model).complete(request), 10))


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, MemoryError])
def test_out_of_memory_is_no_fault_of_one_episode(kind: type[Exception]) -> None:
    """Groups that are left out for it would let steps count on with nothing learnt."""

    class Large(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise kind("CUDA out of memory")

    model = make_model()
    engine, plain = make_engine(model), model.__class__
    request = CompletionRequest(policy="cto", session="s", prompt_ids=(3, 4), sampling=Sampling())
    model.__class__ = Large
    with pytest.raises(kind, match="out of memory"):
        asyncio.run(asyncio.wait_for(engine.complete(request), 10))
    model.__class__ = plain
    assert asyncio.run(asyncio.wait_for(engine.complete(request), 10)).token_ids


def test_a_bug_in_a_step_reaches_its_caller_and_nothing_hangs() -> None:
    class Broken(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyError("a bug")

    model = make_model()
    model.__class__ = Broken
    request = CompletionRequest(policy="cto", session="s", prompt_ids=(3, 4), sampling=Sampling())
    with pytest.raises(KeyError, match="a bug"):
        asyncio.run(asyncio.wait_for(make_engine(model).complete(request), 10))


def test_full_weights_that_several_policies_share_are_stepped_together() -> None:
    model = make_model()
    engine = make_engine(model)
    engine.set_policy("coo", model, version="coo@0")
    engine.set_policy("risk", make_model(1), version="risk@0")
    assert len(engine._lanes) == 2
    engine.set_policy("coo", make_model(2), version="coo@1")
    assert len(engine._lanes) == 3
    engine.set_policy("cto", make_model(2), version="cto@1")  # the first model serves nobody now
    assert len(engine._lanes) == 3
