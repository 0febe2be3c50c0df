"""One engine for seats that different engines play: weights of several runs, scripts, endpoints.

Transcripts are MessageChat's. An engine with a chat of its own reads and writes its own tokens; those that it
sampled are kept, never tokenised again, while its session lives. Not for training: logprobs do not pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from roles.errors import unknown
from simulator.chat import Chat, MessageChat, read_opening
from simulator.engines.base import Completion, CompletionRequest, Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The engine behind one policy.

    Example: Route(engine=ScriptedEngine(chat, seeded=experts), policy="cto", chat=chat)
    """

    engine: Engine
    policy: str  # its name on that engine
    chat: Chat | None = None  # the engine's own; None: it reads MessageChat's tokens
    most_tokens: int | None = None  # of a turn, in the engine's tokens; None: what is asked for


def route_teams(teams: Mapping[str, tuple[Engine, Chat]], roles: Sequence[str]) -> dict[str, Route]:
    """Return routes on which policy "marl:cto" is policy "cto" of the team under the label "marl"."""
    return {
        f"{label}:{role}": Route(engine=engine, policy=role, chat=chat)
        for label, (engine, chat) in teams.items()
        for role in roles
    }


class RoutedEngine:
    """Passes each request to the engine of its policy.

    Example: RoutedEngine({"cto": Route(engine=endpoint, policy="cto"), "risk": Route(engine=scripts, ...)})
    """

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = dict(routes)
        self._chat = MessageChat()
        self._transcripts: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # in both chats, as played

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete; logprobs are 0.0 where the tokens are others.

        Raises:
            UserError: no route for the policy.
        """
        route = self._routes.get(request.policy)
        if route is None:
            raise unknown("policy", request.policy, list(self._routes))
        sampling = request.sampling
        if route.most_tokens is not None and route.most_tokens < sampling.max_completion_tokens:
            sampling = replace(sampling, max_completion_tokens=route.most_tokens)
        request = replace(request, policy=route.policy, sampling=sampling)
        if route.chat is None:
            return await route.engine.complete(request)
        return await self._complete_translated(request, route.engine, route.chat)

    def end_session(self, session: str) -> None:
        """Every engine gives the session back."""
        self._transcripts.pop(session, None)
        for engine in {id(route.engine): route.engine for route in self._routes.values()}.values():
            engine.end_session(session)

    async def _complete_translated(
        self, request: CompletionRequest, engine: Engine, chat: Chat
    ) -> Completion:
        outer, inner = self._transcripts.get(request.session, ((), ()))
        if request.prompt_ids[: len(outer)] != outer:
            outer, inner = (), ()
        prompt = inner + self._translate(request.prompt_ids[len(outer) :], inner, chat)
        done = await engine.complete(replace(request, prompt_ids=prompt))
        ids = self._chat.encode(chat.decode(done.token_ids))
        if done.finish_reason == "stop":
            ids = (*ids, self._chat.end_id)
        self._transcripts[request.session] = request.prompt_ids + ids, prompt + done.token_ids
        return replace(done, token_ids=ids, logprobs=(0.0,) * len(ids))

    def _translate(self, new_ids: tuple[int, ...], before: tuple[int, ...], chat: Chat) -> tuple[int, ...]:
        """Return the new part of a transcript in the tokens of `chat`."""
        ids: tuple[int, ...] = ()
        if before and before[-1] != chat.end_id:  # a limit cut the turn: it is closed, as in the outer one
            ids = (chat.end_id,)
        groups = groupby(self._chat.read(new_ids), key=lambda said: said.speaker)
        opening: str | None = None
        for speaker, group in groups:
            texts = [said.text for said in group]
            match speaker:
                case "system":
                    (opening,) = texts
                case "user" if opening is not None:
                    role, with_tools = read_opening(opening)
                    (brief,) = texts
                    ids += chat.open(role, brief, with_tools=with_tools)
                    opening = None
                case "user":
                    for text in texts:
                        ids += chat.ask(text)
                case "tool":
                    ids += chat.observe(*texts)
                case "assistant":
                    for text in texts:
                        ids += (*chat.encode(text), chat.end_id)
        return ids
