"""The team at work for many callers: a bounded queue, then whole decisions or single words of a seat.

All jobs share one engine, so they are batched. A caller that goes away takes its job along. Counters of the
jobs are told in Prometheus' text format, version 0.0.4.
"""

import asyncio
import bisect
import hashlib
import itertools
import json
import math
import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from evaluation.minutes.live_view import live_view
from evaluation.minutes.minutes import NOT_SCORED
from evaluation.minutes.transcript import render_text, transcript
from roles.base import Role, Tool
from roles.errors import InfrastructureError, UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import MAX_CASE_BYTES, FreeCase
from simulator.agents.scripted_policies import remember_cases
from simulator.chat import Chat
from simulator.engines.base import Completion, CompletionRequest, Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.runner import MAX_TURNS, play_episodes
from simulator.graph.seating import Seating
from simulator.observer import Watch
from simulator.reading import read_episode
from simulator.records import Episode

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
KINDS = ("decision", "governed", "report", "vote", "completion")
OUTCOMES = ("done", "failed", "refused", "cancelled")
MOST_AT_ONCE = 16
MOST_WAITING = 256
MOST_KNOWN = 20_000  # different cases that scripted seats keep
MOST_MINUTES = 500  # plays whose text can be asked for later
Tell = Callable[[str], None]  # one line of progress
Turn = tuple[Literal["user", "assistant", "tool"], tuple[str, ...]]  # who, and its texts: several of tools


class Metrics:
    """Counters of an endpoint since it started.

    Example: with metrics.working("decision"): ...
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.num_waiting = self.num_active = 0
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._buckets = {kind: [0] * (len(BUCKETS_S) + 1) for kind in KINDS}
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._tokens: Counter[str] = Counter()
        self._mean_s = 1.0  # of the last jobs

    @contextmanager
    def working(self, kind: str) -> Iterator[None]:
        """Count a job that was let in: how it ends, and how long it takes, its waiting left out."""
        start, outcome = self._clock(), "failed"
        self.num_active += 1
        try:
            yield
            outcome = "done"
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        finally:
            seconds = self._clock() - start
            self.num_active -= 1
            self._jobs[kind, outcome] += 1
            self._seconds[kind] += seconds
            self._buckets[kind][bisect.bisect_left(BUCKETS_S, seconds)] += 1
            self._mean_s += 0.2 * (seconds - self._mean_s)

    def refuse(self, kind: str) -> None:
        """Count a job that found the queue full."""
        self._jobs[kind, "refused"] += 1

    def add_tokens(self, direction: str, number: int) -> None:
        """Count tokens that models read ("prompt") or wrote ("completion")."""
        self._tokens[direction] += number

    def estimate_wait_s(self, most_at_once: int) -> int:
        """Return the seconds after which a refused caller should ask again, from 1 to 60."""
        return min(60, max(1, math.ceil(self._mean_s * (self.num_waiting + 1) / most_at_once)))

    def render(self) -> str:
        """Return all figures as text."""
        return "\n".join(self._list_lines()) + "\n"

    def _list_lines(self) -> Iterator[str]:
        yield from _head("emads_jobs_total", "counter", "Jobs by kind and outcome.")
        for kind in KINDS:
            for outcome in OUTCOMES:
                number = self._jobs[kind, outcome]
                yield f'emads_jobs_total{{kind="{kind}",outcome="{outcome}"}} {number}'
        yield from _head("emads_jobs_active", "gauge", "Jobs at work.")
        yield f"emads_jobs_active {self.num_active}"
        yield from _head("emads_jobs_waiting", "gauge", "Jobs that wait for a place.")
        yield f"emads_jobs_waiting {self.num_waiting}"
        yield from _head("emads_tokens_total", "counter", "Tokens of whole decisions.")
        for direction in ("prompt", "completion"):
            yield f'emads_tokens_total{{direction="{direction}"}} {self._tokens[direction]}'
        yield from _head("emads_job_seconds", "histogram", "Duration of jobs, waiting left out.")
        for kind in KINDS:
            total = 0
            for bound, number in zip((*BUCKETS_S, math.inf), self._buckets[kind], strict=True):
                total += number
                shown = "+Inf" if math.isinf(bound) else f"{bound:g}"
                yield f'emads_job_seconds_bucket{{kind="{kind}",le="{shown}"}} {total}'
            yield f'emads_job_seconds_sum{{kind="{kind}"}} {self._seconds[kind]:.6f}'
            yield f'emads_job_seconds_count{{kind="{kind}"}} {total}'


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


class ServedTeam(Protocol):
    """A team as the endpoint needs it; `emads.load_team` returns such teams, and says what these are."""

    @property
    def label(self) -> str: ...

    @property
    def stream(self) -> str: ...

    @property
    def chat(self) -> Chat: ...

    @property
    def sampling(self) -> Sampling: ...

    @property
    def rounds(self) -> int: ...

    @property
    def make_game(self) -> MakeGame: ...

    def read_case(self, path: Path) -> FreeCase: ...


class BusyError(Exception):
    """The queue is full; ask again after `retry_after_s` seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"all places are taken; ask again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTable:
    """One decided case.

    Example: (await tables.decide(case)).decision == {"option": "B", "fund": ["cto1"], "escalate": False}
    """

    number: str  # names its minutes
    case: str  # its key
    decision: dict[str, Any] | None  # None: nothing valid was decided
    votes: Mapping[str, str | None]  # seat -> accept, object, or None for no valid vote
    reports: Mapping[str, str]
    minutes: str
    prompt_tokens: int
    completion_tokens: int

    def as_fields(self) -> dict[str, Any]:
        """Return the play as JSON values, without its minutes."""
        return {name: value for name, value in asdict(self).items() if name != "minutes"}


class Tables:
    """The team and its engine behind a queue of bounded length.

    Example: await Tables(team, engine).decide(case, print)
    """

    def __init__(
        self,
        team: ServedTeam,
        engine: Engine,
        *,
        known: list[PlayableCase] | None = None,
        most_at_once: int = MOST_AT_ONCE,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """`known`: cases that scripted seats can play, which grows; None where no seat is scripted."""
        self.team, self.engine, self.metrics = team, engine, Metrics()
        self.most_at_once, self.most_waiting = most_at_once, most_waiting
        self._known = known
        self._cases: dict[str, FreeCase] = {}
        self._places = asyncio.Semaphore(most_at_once)
        self._numbers = itertools.count(1)
        self.minutes: OrderedDict[str, str] = OrderedDict()  # of the last plays, by number
        self._make_game = team.make_game if known is None else remember_cases(known, team.make_game)

    @asynccontextmanager
    async def place(self, kind: str) -> AsyncIterator[None]:
        """Hold a place among those at work for the block; wait for one in turn.

        Raises:
            BusyError: too many wait already.
        """
        if self._places.locked() and self.metrics.num_waiting >= self.most_waiting:
            self.metrics.refuse(kind)
            raise BusyError(self.metrics.estimate_wait_s(self.most_at_once))
        self.metrics.num_waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.metrics.num_waiting -= 1
        try:
            with self.metrics.working(kind):
                yield
        finally:
            self._places.release()

    async def decide(self, case: FreeCase, tell: Tell | None = None) -> PlayedTable:
        """Play a whole decision; `tell` hears lines of progress while it is played.

        Raises:
            BusyError: the queue is full.
            InfrastructureError: the engine failed.
        """
        async with self.place("decision"):
            number = f"{next(self._numbers)}"
            (episode,) = await play_episodes(
                [self.settle(case)],
                {role: role for role in ROLES},
                self.engine,
                self.team.chat,
                self.team.sampling,
                rounds=self.team.rounds,
                stream=f"serve/{number}",
                watch=watch_lines(tell),
                make_game=self._make_game,
                concurrency=1,
            )
            if episode.error is not None:
                raise InfrastructureError(episode.error)
            return self._keep(number, case, episode)

    async def report(self, case: FreeCase, seat: str) -> str:
        """Let one seat report.

        Raises:
            UserError: no such seat.
            BusyError, InfrastructureError: as `decide`.
        """
        async with self.place("report"):
            return (await self._speak(case, seat, None))[0]

    async def vote(self, case: FreeCase, seat: str, reports: Mapping[str, str], decision: str) -> str:
        """Let one seat, which reports first as it always does, vote on a decision about these reports.

        Raises:
            UserError: no such seat.
            BusyError, InfrastructureError: as `decide`.
        """
        async with self.place("vote"):
            game = self._make_game(self.settle(case))
            read = {name: game.read_report(name, reports.get(name, "")) for name in case.seats}
            brief = (
                game.write_vote_brief(game.read_decision(read, decision), seat, read) if seat in read else ""
            )
            return (await self._speak(case, seat, brief))[1]

    async def complete(
        self, role: str, turns: Sequence[Turn], sampling: Sampling, tools: Sequence[Tool] = ()
    ) -> tuple[str, Completion, int]:
        """Let one role go on with a chat, whose last turn is the user's or results of tools.

        `tools`: the caller's, which the role may call.

        Returns: its text, the completion, and the length of the prompt in tokens.
        """
        async with self.place("completion"):
            chat, session = self.team.chat, f"serve/{next(self._numbers)}/{role}"
            ids = chat.open(_with_tools(ROLES[role], tools), turns[0][1][0], with_tools=bool(tools))
            for who, texts in turns[1:]:
                if who == "assistant":
                    ids += (*chat.encode(texts[0]), chat.end_id)
                else:
                    ids += chat.observe(*texts) if who == "tool" else chat.ask(texts[0])
            request = CompletionRequest(policy=role, session=session, prompt_ids=ids, sampling=sampling)
            try:
                completion = await self.engine.complete(request)
            finally:
                self.engine.end_session(session)
            self.metrics.add_tokens("prompt", len(ids))
            self.metrics.add_tokens("completion", len(completion.token_ids))
            return chat.decode(completion.token_ids), completion, len(ids)

    def make_seating(self, stream: str, tell: Tell | None) -> Seating:
        """Return the team seated for one governed case."""
        return Seating(
            team={role: role for role in ROLES},
            engine=self.engine,
            chat=self.team.chat,
            sampling=self.team.sampling,
            stream=stream,
            max_turns=MAX_TURNS,
            roles=ROLES,
            watch=watch_lines(tell),
            make_game=self._make_game,
        )

    def settle(self, case: FreeCase) -> FreeCase:
        """Return the one object that stands for this text, which scripted seats know from then on.

        Raises:
            UserError: scripted seats know too many cases already.
        """
        if self._known is None:
            return case
        if case.key not in self._cases:
            if len(self._cases) >= MOST_KNOWN:
                raise UserError(f"scripted seats have met {MOST_KNOWN} cases; start the server again")
            self._cases[case.key] = case
            self._known.append(case)
        return self._cases[case.key]

    def read_case(self, text: str) -> FreeCase:
        """Return the case in a message: YAML, or Markdown that begins with YAML between two `---` lines.

        A message may fence it as a code block, as chat models do.

        Raises:
            UserError: no case, or one that this team cannot play; names line, field and remedy.
        """
        text = text.strip()
        lines = text.split("\n")
        if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
            text = "\n".join(lines[1:-1])
        if len(text.encode(errors="surrogatepass")) > MAX_CASE_BYTES:
            raise UserError(f"the case has more than {MAX_CASE_BYTES} bytes; it is a page or two, shorten it")
        with tempfile.TemporaryDirectory(prefix="emads-case-") as folder:
            path = Path(folder) / f"message{'.md' if text.startswith('---') else '.yaml'}"
            path.write_bytes(text.encode(errors="replace"))
            try:
                return self.team.read_case(path)
            except UserError as error:
                raise UserError(str(error).replace(str(path), "case")) from None

    async def _speak(self, case: FreeCase, seat: str, second: str | None) -> tuple[str, str]:
        if seat not in case.seats:
            note = f"; {RECONCILER} decides: call decide" if seat == RECONCILER else ""
            raise UserError(f"no seat {seat!r} in this case (seats: {', '.join(case.seats)}){note}")
        case = self.settle(case)
        session = f"serve/{next(self._numbers)}"
        seating, game = self.make_seating(session, None), self._make_game(case)
        agent = seating.make_agents(case, game, session)[seat]
        try:
            first = await agent.answer(seating.open_case(case, game, rounds=0)["briefs"][seat])
            return first, "" if second is None else await agent.answer(second)
        finally:
            seating.end_sessions(case, session)

    def _keep(self, number: str, case: FreeCase, episode: Episode) -> PlayedTable:
        read = read_episode(case, episode)
        turns = [turn for path in episode.trajectories.values() for turn in path.turns]
        completion_tokens = sum(len(turn.completion_ids) for turn in turns)
        prompt_tokens = sum(len(turn.context_ids) for turn in turns)
        self.metrics.add_tokens("prompt", prompt_tokens)
        self.metrics.add_tokens("completion", completion_tokens)
        game = self._make_game(case)
        briefs = {seat: game.write_report_brief(seat) for seat in case.seats}
        shown = transcript(episode, None, briefs=briefs, label=self.team.label, unscored=NOT_SCORED)
        options = [f"  {letter}. {meaning}" for letter, meaning in case.meanings.items()]
        self.minutes[number] = "\n".join([case.title, *options, "", render_text(shown)])
        while len(self.minutes) > MOST_MINUTES:
            self.minutes.popitem(last=False)
        return PlayedTable(
            number=number,
            case=case.key,
            decision=None if read.decision is None else read.decision.model_dump(mode="json"),
            votes=dict(read.votes),
            reports=dict(episode.reports),
            minutes=self.minutes[number],
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )


def watch_lines(tell: Tell | None) -> Watch | None:
    """Return the live view, told line by line to a caller; None without one."""
    return None if tell is None else live_view(lambda line: tell(line.plain), with_keys=False)


def _with_tools(role: Role, tools: Sequence[Tool]) -> Role:
    """Return the role with the caller's tools; its name tells the tools, as chats keep openings by name."""
    if not tools:
        return role
    shown = json.dumps([tool.as_chat_tool() for tool in tools], sort_keys=True)
    name = f"{role.name}+{hashlib.sha256(shown.encode()).hexdigest()[:16]}"
    return replace(role, name=name, tools=tuple(tools))
