"""The work that engine benchmarks share: calls with fixed prompts and fixed lengths, and ways to play them.

A workload is a list of episodes; an episode a list of stages; a stage the calls that may run at once. A
session is one transcript: its later calls go on from all that was said before. Every way makes exactly the
same calls: the tokens made are asserted before a ratio is printed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.engines.base import CompletionRequest, Engine, Sampling

ROLES = ("cto", "coo", "risk", "cost", "reconcile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completion of exactly num_tokens tokens."""

    role: str
    session: str
    prompt_ids: tuple[int, ...]  # what is new in the session's transcript
    num_tokens: int


Episode = tuple[tuple[Call, ...], ...]  # stages, one after the other; the calls of a stage side by side


class Answer(Protocol):
    """Whoever answers calls."""

    async def __call__(self, call: Call) -> int:
        """Make the call; the tokens made."""
        ...

    def end(self, episode: Episode) -> None:
        """The episode is over: its caches may be dropped."""
        ...


LENGTHS = ("exponential", "budget")


def draw_length(rng: random.Random, mean: int, lengths: str) -> int:
    """Tokens of one completion, about `mean` on average, 2 or more.

    exponential: at most 6 times the mean. budget: one in six uses a budget of 4 times the mean, as a model
    does that finds no end; the others stop after 0.1 to 0.7 times the mean.
    """
    if lengths == "exponential":
        return max(2, min(6 * mean, round(rng.expovariate(1 / mean))))
    return 4 * mean if rng.random() < 1 / 6 else max(2, round(rng.uniform(0.1, 0.7) * mean))


def joint_episodes(
    count: int, *, vocab: int, prompt: int, mean_tokens: int, lengths: str = "exponential", seed: int = 0
) -> list[Episode]:
    """Four reports, then a decision that read them, then four votes; lengths as uneven as answers are.

    A vote has a quarter of `mean_tokens` and goes on in its role's transcript, after 8 more tokens.
    """
    rng = random.Random(f"engines/{seed}")

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(12, vocab) for _ in range(length))

    def tokens() -> int:
        return draw_length(rng, mean_tokens, lengths)

    episodes = []
    for number in range(count):
        name = f"{seed}/{number}"
        first = [
            Call(role=role, session=f"{name}/{role}", prompt_ids=ids(prompt), num_tokens=tokens())
            for role in ROLES[:4]
        ]
        decision = Call(
            role="reconcile", session=f"{name}/r", prompt_ids=ids(2 * prompt), num_tokens=tokens()
        )
        votes = [
            Call(
                role=call.role,
                session=call.session,
                prompt_ids=ids(8),
                num_tokens=max(2, mean_tokens // 4),
            )
            for call in first
        ]
        episodes.append((tuple(first), (decision,), tuple(votes)))
    return episodes


def tool_transcripts(
    count: int,
    *,
    vocab: int,
    prompt: int,
    mean_tokens: int,
    turns: int,
    lengths: str = "exponential",
    seed: int = 0,
) -> list[Episode]:
    """One agent per transcript, `turns` turns of uneven length with an observation between them."""
    rng = random.Random(f"tools/{seed}")
    transcripts = []
    for number in range(count):
        ids = tuple(rng.randrange(12, vocab) for _ in range(prompt))
        stages = []
        for _ in range(turns):
            length = draw_length(rng, mean_tokens, lengths)
            role = ROLES[number % 5]
            stages.append((Call(role=role, session=f"t{seed}/{number}", prompt_ids=ids, num_tokens=length),))
            ids = tuple(rng.randrange(12, vocab) for _ in range(8))
        transcripts.append(tuple(stages))
    return transcripts


def expected_tokens(work: Sequence[Episode]) -> int:
    """Number of tokens that every way must make."""
    return sum(call.num_tokens for episode in work for stage in episode for call in stage)


class Ask:
    """Calls on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._said: dict[str, tuple[int, ...]] = {}

    async def __call__(self, call: Call) -> int:
        prompt = self._said.get(call.session, ()) + call.prompt_ids
        completion = await self.engine.complete(
            CompletionRequest(
                policy=call.role,
                session=call.session,
                prompt_ids=prompt,
                sampling=Sampling(temperature=1.0, max_completion_tokens=call.num_tokens),
            )
        )
        assert len(completion.token_ids) == call.num_tokens
        self._said[call.session] = prompt + completion.token_ids
        return len(completion.token_ids)

    def end(self, episode: Episode) -> None:
        for session in {call.session for stage in episode for call in stage}:
            self.engine.end_session(session)
            del self._said[session]


async def play_together(
    work: Sequence[Episode], answer: Answer, *, tool_s: float = 0.0, seats: int | None = None
) -> int:
    """Ours: every episode goes on as soon as it can; tools run while others are completed.

    `seats`: episodes at once; where one ends the next begins. None: all.
    """
    free = asyncio.Semaphore(seats or len(work))

    async def play(episode: Episode) -> int:
        async with free:
            return await play_one(episode)

    async def play_one(episode: Episode) -> int:
        made = 0
        for number, stage in enumerate(episode):
            if number and tool_s:
                await asyncio.sleep(tool_s)
            made += sum(await asyncio.gather(*map(answer, stage)))
        answer.end(episode)
        return made

    return sum(await asyncio.gather(*map(play, work)))


async def play_with_barriers(
    work: Sequence[Episode], answer: Answer, *, tool_s: float = 0.0, serial_tools: bool = False
) -> int:
    """A turn-barrier loop: nobody's next turn begins before everybody's last one has ended."""
    made = 0
    for number in range(max(map(len, work))):
        stage = [call for episode in work if number < len(episode) for call in episode[number]]
        if number and tool_s:
            if serial_tools:
                for _ in stage:
                    await asyncio.sleep(tool_s)
            else:
                await asyncio.sleep(tool_s)
        made += sum(await asyncio.gather(*map(answer, stage)))
    for episode in work:
        answer.end(episode)
    return made


async def play_by_role(work: Sequence[Episode], answer: Answer) -> int:
    """One role at a time on the same engine: all its calls of a stage, then the next role's."""
    made = 0
    for number in range(max(map(len, work))):
        for role in ROLES:
            calls = [call for episode in work for call in episode[number] if call.role == role]
            made += sum(await asyncio.gather(*map(answer, calls)))
    for episode in work:
        answer.end(episode)
    return made


async def play_in_waves(
    work: Sequence[Episode], seats: int, play: Callable[[Sequence[Episode]], Awaitable[int]]
) -> int:
    """A loop over batches of `seats` episodes, as a trainer's is: the next begins when the last has ended."""
    return sum([await play(work[start : start + seats]) for start in range(0, len(work), seats)])


async def play_in_order(work: Sequence[Episode], answer: Answer) -> int:
    """One call after the other."""
    made = 0
    for episode in work:
        for stage in episode:
            for call in stage:
                made += await answer(call)
        answer.end(episode)
    return made
