"""The embedded engine on adapters of one base: all in one pass, each row exactly as by its adapter alone."""

import asyncio
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import small_model, speak_by_adapters, tiny_tokenizer

from reliability.joint.scripted_models import next_token_logprobs
from roles.errors import InfrastructureError
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.engine_check import check_engine
from simulator.engines.embedded.lora_rows import AdapterStack, can_stack

TEAM = ("cto", "coo", "risk", "cost", "reconcile")
Talk = list[tuple[tuple[int, ...], Completion]]


@pytest.fixture(params=[False, True], ids=["growing", "fixed"], autouse=True)
def _shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for decode steps in shapes that grow and in those that are recorded on a GPU."""
    defaults = dict(TransformersEngine.__init__.__kwdefaults__ or {}, fixed_shapes=request.param)
    monkeypatch.setattr(TransformersEngine.__init__, "__kwdefaults__", defaults)


def adapted_model(**options: Any) -> Any:
    """Five adapters of different ranks that all say something, cto's on fewer layers."""
    model: Any = None
    for number, role in enumerate(TEAM):
        layers = ["q_proj", "down_proj"] if role == "cto" else "all-linear"
        lora = LoraConfig(r=2 + number, lora_alpha=8, target_modules=layers, task_type="CAUSAL_LM", **options)
        if model is None:
            model = get_peft_model(small_model(0, 6.0), lora, adapter_name=role)
        else:
            model.add_adapter(role, lora)
    return speak_by_adapters(model)


def serve(model: Any, roles: tuple[str, ...], **options: Any) -> TransformersEngine:
    engine = TransformersEngine(end_id=1, **options)
    for role in roles:
        engine.set_policy(role, model, version=f"{role}@3", adapter=role)
    return engine


def play(engines: dict[str, TransformersEngine], temperature: float) -> dict[str, Talk]:
    """Three turns of twelve transcripts, uneven in length, all at once; by session."""
    generator = torch.Generator().manual_seed(5)
    vocabulary = len(tiny_tokenizer())

    async def talk(role: str, session: str, prompt: tuple[int, ...]) -> Talk:
        found: Talk = []
        for turn in range(3):
            sampling = Sampling(temperature=temperature, max_completion_tokens=3 + 4 * (len(prompt) % 5))
            request = CompletionRequest(policy=role, session=session, prompt_ids=prompt, sampling=sampling)
            completion = await engines[role].complete(request)
            found.append((prompt, completion))
            prompt = (*prompt, *completion.token_ids, 20 + turn, 9)
        engines[role].end_session(session)
        return found

    async def run() -> dict[str, Talk]:
        lengths = torch.randint(1, 40, (12,), generator=generator).tolist()
        prompts = [tuple(torch.randint(2, vocabulary, (n,), generator=generator).tolist()) for n in lengths]
        names = [(TEAM[i % 5], f"s{i}") for i in range(len(prompts))]
        talks = [talk(role, name, prompt) for (role, name), prompt in zip(names, prompts, strict=True)]
        return dict(zip([name for _, name in names], await asyncio.gather(*talks), strict=True))

    return asyncio.run(run())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_pass_samples_what_each_adapter_alone_samples(temperature: float) -> None:
    model = adapted_model()
    together = serve(model, TEAM)
    one_pass = play(dict.fromkeys(TEAM, together), temperature)
    assert len(together._lanes) == 1
    alone = play({role: serve(model, (role,)) for role in TEAM}, temperature)
    largest = 0.0
    for session, talk in one_pass.items():
        for (prompt, found), (_, expected) in zip(talk, alone[session], strict=True):
            assert found.token_ids == expected.token_ids
            assert found.policy_version == expected.policy_version
            gaps = torch.tensor(found.logprobs) - torch.tensor(expected.logprobs)
            largest = max(largest, float(gaps.abs().max()))
            model.set_adapter(found.policy_version.split("@")[0])
            predicted = next_token_logprobs(model, prompt + found.token_ids)
            for place, (token, logprob) in enumerate(zip(found.token_ids, found.logprobs, strict=True)):
                assert logprob == pytest.approx(float(predicted[len(prompt) - 1 + place, token]), abs=2e-5)
    assert largest < 2e-5  # logits reach 42, where float32 numbers lie 4e-6 apart


def test_adapters_on_different_layers_speak_apart() -> None:
    first, second = (
        LoraConfig(r=4, lora_alpha=8, target_modules=[layers], task_type="CAUSAL_LM")
        for layers in ("q_proj", "down_proj")
    )
    model: Any = get_peft_model(small_model(0, 6.0), first, adapter_name="cto")
    model.add_adapter("coo", second)
    assert check_engine(dict.fromkeys(("cto", "coo"), speak_by_adapters(model))) < 1e-3


def test_new_weights_of_one_policy_leave_the_transcripts_of_others() -> None:
    model = adapted_model()
    engine = serve(model, TEAM)
    sampling = Sampling(temperature=0.0, max_completion_tokens=6)

    def ask(role: str, prompt: tuple[int, ...]) -> Completion:
        request = CompletionRequest(policy=role, session=role, prompt_ids=prompt, sampling=sampling)
        return asyncio.run(engine.complete(request))

    before = {role: ask(role, (5, 6, 7)) for role in ("coo", "risk")}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.coo" in name:
                parameter.neg_()
    engine.set_policy("coo", model, version="coo@4", adapter="coo")
    after = ask("coo", (5, 6, 7))
    assert (after.policy_version, before["coo"].policy_version) == ("coo@4", "coo@3")
    assert after.logprobs != before["coo"].logprobs
    more = ask("risk", (5, 6, 7, *before["risk"].token_ids, 30))
    model.set_adapter("risk")
    predicted = next_token_logprobs(model, (5, 6, 7, *before["risk"].token_ids, 30))
    assert more.token_ids[0] == int(predicted[-1].argmax())


def test_an_adapter_that_is_not_finite_is_refused_and_spoils_nobody() -> None:
    model = adapted_model()
    engine = serve(model, TEAM)
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if "lora_B.cost" in n)[0, 0] = float("nan")
    with pytest.raises(InfrastructureError, match="cost@4 holds numbers that are not finite"):
        engine.set_policy("cost", model, version="cost@4", adapter="cost")


def test_what_is_no_plain_lora_is_not_stacked_and_still_right() -> None:
    model = adapted_model(use_dora=True)
    assert can_stack(adapted_model())
    assert not can_stack(model)
    assert not can_stack(small_model())
    engine = serve(model, TEAM[:2])
    sampling = Sampling(temperature=0.0, max_completion_tokens=4)

    async def ask_both() -> list[Completion]:
        requests = [
            CompletionRequest(policy=role, session=role, prompt_ids=(5, 6, 7), sampling=sampling)
            for role in TEAM[:2]
        ]
        return await asyncio.gather(*map(engine.complete, requests))

    assert len(engine._lanes) == 2
    for role, completion in zip(TEAM[:2], asyncio.run(ask_both()), strict=True):
        model.set_adapter(role)
        predicted = next_token_logprobs(model, (5, 6, 7, *completion.token_ids))
        assert list(completion.token_ids) == predicted[2:-1].argmax(-1).tolist()


def test_after_a_pass_the_model_speaks_by_its_active_adapter_again() -> None:
    model = adapted_model()
    model.set_adapter("risk")
    before = next_token_logprobs(model, (5, 6, 7))
    stack = AdapterStack(model, TEAM)
    with stack.route(torch.tensor([[1]])):
        assert not torch.equal(next_token_logprobs(model, (5, 6, 7)), before)
    assert torch.equal(next_token_logprobs(model, (5, 6, 7)), before)


def test_refreshed_weights_of_an_adapter_count_and_the_base_stays_as_it_is() -> None:
    """Numbers of the adapter's own pass, before and after its weights change."""
    model = adapted_model()
    base = {name: p.clone() for name, p in model.named_parameters() if "base_layer" in name}
    stack = AdapterStack(model, ["risk"])
    model.set_adapter("risk")
    for factor in (1.0, 0.5):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B.risk" in name:
                    parameter.mul_(factor)
        assert stack.refresh(["risk"])
        expected = next_token_logprobs(model, (5, 6, 7))
        with stack.route(torch.tensor([[0]])):
            found = next_token_logprobs(model, (5, 6, 7))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert base
    assert all(torch.equal(p, base[name]) for name, p in model.named_parameters() if name in base)
    assert not torch.equal(expected, next_token_logprobs_without_adapter(model))


def next_token_logprobs_without_adapter(model: Any) -> torch.Tensor:
    with model.disable_adapter():
        return next_token_logprobs(model, (5, 6, 7))


def test_a_cancelled_call_is_sampled_no_further_and_others_go_on() -> None:
    engine = serve(adapted_model(), TEAM, max_rows=1)
    long = Sampling(temperature=1.0, max_completion_tokens=100_000)
    short = Sampling(temperature=1.0, max_completion_tokens=3)

    async def run() -> Completion:
        engine.end_id = None  # nothing but its length could end the first call
        call = CompletionRequest(policy="cto", session="a", prompt_ids=(5,), sampling=long)
        waiting = asyncio.ensure_future(engine.complete(call))
        await asyncio.sleep(0.05)
        waiting.cancel()
        other = CompletionRequest(policy="coo", session="b", prompt_ids=(6,), sampling=short)
        return await asyncio.wait_for(engine.complete(other), 20)

    assert len(asyncio.run(run()).token_ids) == 3
    assert not engine.is_busy
