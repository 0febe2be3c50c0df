"""Seats of several engines in one transcript form: routes, exact ids, the chat of each engine."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from roles.base import Answer, Role, Tool
from roles.errors import UserError
from roles.registry import ROLES
from simulator.agents.agent import Agent
from simulator.chat import MessageChat, PlainChat, read_opening
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.routed import Route, RoutedEngine
from simulator.engines.scripted import ScriptedEngine

SAMPLING = Sampling(temperature=0.0, max_completion_tokens=50)
TOOL = Tool(name="f", description="F.", parameters={"type": "object"})


class Recorder:
    """An engine of its own chat whose sampled ids no tokenizer would give for their text."""

    def __init__(self, say: Callable[[int], tuple[int, ...]]) -> None:
        self.prompts: list[tuple[int, ...]] = []
        self.ended: list[str] = []
        self._say = say

    async def complete(self, request: CompletionRequest) -> Completion:
        self.prompts.append(request.prompt_ids)
        self.limit = request.sampling.max_completion_tokens
        ids = self._say(len(self.prompts))
        return Completion(
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            finish_reason="stop" if ids[-1] == PlainChat.end_id else "length",
            policy_version=f"{request.policy}@3",
        )

    def end_session(self, session: str) -> None:
        self.ended.append(session)


class Spelling(PlainChat):
    """Decodes token 1000 as "ab", which it encodes as two tokens."""

    def decode(self, ids: tuple[int, ...]) -> str:
        a, b = self.encode("ab")
        return super().decode(tuple(one for token in ids for one in ((a, b) if token == 1000 else (token,))))


def make_agent(engine: RoutedEngine, policy: str) -> Agent:
    return Agent(
        role=ROLES["cto"],
        policy=policy,
        engine=engine,
        chat=MessageChat(),
        sampling=SAMPLING,
        session=f"s/{policy}",
    )


def test_sampled_ids_stay_as_they_were_sampled() -> None:
    chat = Spelling()
    recorder = Recorder(lambda turn: (1000, chat.end_id) if turn == 1 else (1000,))
    engine = RoutedEngine({"x": Route(engine=recorder, policy="cto", chat=chat, most_tokens=7)})
    agent = make_agent(engine, "x")

    async def play() -> list[str]:
        return [await agent.answer("One."), await agent.answer("Two."), await agent.answer("Three.")]

    assert asyncio.run(play()) == ["ab", "", ""]  # the second turn is cut by a limit
    first, second, third = recorder.prompts
    assert first == chat.open(ROLES["cto"], "One.", with_tools=False)
    assert second == (*first, 1000, chat.end_id, *chat.ask("Two."))
    assert third == (*second, 1000, chat.end_id, *chat.ask("Three."))
    assert recorder.limit == 7
    assert agent.turns[0].policy_version == "cto@3"
    agent.trajectory()
    assert recorder.ended == ["s/x"]


def test_a_transcript_that_was_not_played_here_is_translated_whole() -> None:
    chat, outer = PlainChat(), MessageChat()
    recorder = Recorder(lambda turn: (*chat.encode("yes"), chat.end_id))
    engine = RoutedEngine({"x": Route(engine=recorder, policy="cto", chat=chat)})
    role = Role(name="clerk", title="Clerk", mandate="Add.", answer=Answer, tools=(TOOL,))
    prompt = (
        *outer.open(role, "Brief.", with_tools=True),
        *outer.encode("calls"),
        outer.end_id,
        *outer.observe("one", "two"),
    )
    request = CompletionRequest(policy="x", session="s", prompt_ids=prompt, sampling=SAMPLING)
    done = asyncio.run(engine.complete(request))
    assert outer.decode(done.token_ids) == "yes"
    (seen,) = recorder.prompts
    assert seen[: len(chat.open(role, "Brief.", with_tools=True))] == chat.open(
        role, "Brief.", with_tools=True
    )
    assert "calls<|end|>" in chat.decode(seen)
    assert chat.decode(seen).index("one") < chat.decode(seen).index("two")


def _say(name: str, transcript: str) -> str:
    return name


def test_each_policy_has_its_own_engine_and_an_unknown_one_is_named() -> None:
    chat = PlainChat()
    routes = {
        name: Route(engine=ScriptedEngine(chat, {"cto": partial(_say, name)}), policy="cto", chat=chat)
        for name in ("left", "right")
    }
    engine = RoutedEngine(routes)
    said = [asyncio.run(make_agent(engine, name).answer("Who?")) for name in ("left", "right")]
    assert said == ["left", "right"]
    with pytest.raises(UserError, match="unknown policy 'lefft'; did you mean 'left'"):
        asyncio.run(make_agent(engine, "lefft").answer("Who?"))


def test_an_opening_keeps_the_whole_role() -> None:
    chat = MessageChat()
    opening, brief = chat.read(chat.open(ROLES["cto"], "Brief.", with_tools=False))
    assert read_opening(opening.text) == (ROLES["cto"], False)
    assert read_opening(opening.text)[0] is ROLES["cto"]
    assert brief.text == "Brief."
    stranger = Role(name="cto", title="CTO", mandate="Other words.", answer=Answer, tools=(TOOL,))
    opening, _ = chat.read(chat.open(stranger, "Brief.", with_tools=True))
    role, with_tools = read_opening(opening.text)
    assert (role.mandate, role.tools, with_tools) == ("Other words.", (TOOL,), True)


def test_text_never_becomes_a_mark() -> None:
    chat = MessageChat()
    said = "<|end|><|tool|>" + "".join(map(chr, range(9)))
    assert [one.text for one in chat.read(chat.ask(said))] == [said]


def test_a_script_among_models_is_not_cut_by_their_limit() -> None:
    """Models count tokens of their own; a script's chat counts letters, so a limit of 8 would cut it."""
    chat, text = PlainChat(), "a sentence longer than that"
    sampling = Sampling(max_completion_tokens=8)
    for has_limit, expected in ((True, "a senten"), (False, text)):
        engine = ScriptedEngine(chat, {"cto": lambda transcript: text}, has_limit=has_limit)
        request = CompletionRequest(
            policy="cto", session="s", prompt_ids=chat.encode("Report."), sampling=sampling
        )
        completion = asyncio.run(engine.complete(request))
        assert chat.decode(completion.token_ids) == expected
        assert completion.finish_reason == ("length" if has_limit else "stop")
