"""A team whose seats are played by any mix of API models, weights of runs, scripts and people.

Importing this module imports no torch; a seat played by a run does.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from emads.seats.person import PersonEngine, WebPersonEngine
from emads.seats.players import ApiPlayer, HumanPlayer, Player, RunPlayer, ScriptPlayer, Seats
from emads.seats.prices import ApiOptions
from emads.seats.scripts import make_script, make_solo_script, refuse_words
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Family, Scenario
from scenarios.registry import families
from scenarios.team import PlanGame, Style, TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.suite_scripts import MakeScript
from simulator.chat import Chat
from simulator.chat_messages import MessageChat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.chat_engine import ChatEngine, Ledger, ReplyFile, Usage
from simulator.engines.routed import Route, RoutedEngine
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.game import MakeGame
from simulator.graph.seating import list_roles
from simulator.reward import TeamRewardWeights

if TYPE_CHECKING:
    from emads.teams import Team
    from emads.trained_team import TrainedTeam

MOST_TOKENS = 16_384  # of a turn; every player has a smaller limit of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTeam:
    """The engines of a team while it plays.

    Example: with team.open(tables, alone) as opened: opened.table
    """

    table: Engine  # every seat at joint cases
    alone: Engine  # every role on its own family
    routes: Mapping[str, Route]  # of the table, by seat


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedTeam:
    """Players by seat; cases, rounds and reward weights are those of `home`.

    Example: load_team(seats=["all=scripted", "cto=openai:qwen@http://127.0.0.1:8000/v1"])
    """

    seats: Seats
    api: ApiOptions
    home: "Team"
    runs: Mapping[RunPlayer, "TrainedTeam"]
    ledger: Ledger  # of all that this team has played
    questions: int | None = None  # most questions of ReconcileGPT; None: as trained, else one; scripts none
    chat: Chat = field(default_factory=MessageChat)
    sampling: Sampling = field(
        default_factory=lambda: Sampling(temperature=0.0, max_completion_tokens=MOST_TOKENS)
    )

    @property
    def label(self) -> str:
        return f"team of {self.seats.label}"

    @property
    def stream(self) -> str:
        return f"seats/{self.seats.label}"

    @property
    def rounds(self) -> int:
        return self.home.rounds

    @property
    def weights(self) -> TeamRewardWeights:
        return self.home.weights

    @property
    def make_game(self) -> MakeGame:
        """The game in full prompts, except for seats of runs that were trained on short ones."""
        own: dict[str, Style] = {
            seat: "short"
            for seat in ROLES
            if isinstance(player := self.seats.player_of(seat), RunPlayer)
            and self.runs[player].style == "short"
        }
        chair = self.seats.player_of(RECONCILER)
        most = self.questions
        if most is None and isinstance(chair, RunPlayer):
            most = self.runs[chair].config.model.questions
        return partial(PlanGame, questions=most, own_styles=own)

    @property
    def stop(self) -> str | None:
        """The reason for which endpoints were asked no more; None where nothing stopped the play."""
        return self.ledger.stop

    @property
    def spent(self) -> float | None:
        """Return what the endpoints have cost, those replies included that a file held; None: no prices."""
        players = [player for player in self.seats.players if isinstance(player, ApiPlayer)]
        is_priced = all(self.api.find_price(player.model) is not None for player in players)
        return self.ledger.budget.spent if is_priced else None

    def families_of(self, seat: str) -> Mapping[str, Family]:
        """Return the role families in the prompts that the seat's player reads."""
        player = self.seats.player_of(seat)
        return families(self.runs[player].style if isinstance(player, RunPlayer) else "full")

    def draw_case(self, index: int) -> TeamScenario:
        """Return the home team's test scenario of this index."""
        return self.home.draw_case(index)

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case as every run at the table can read it.

        Raises:
            UserError: a damaged file, or a case that a player cannot read.
        """
        for team in self.runs.values():
            team.read_case(path)
        case = read_case(path)
        for seat in case.list_unlisted():
            if isinstance(self.seats.player_of(seat), ScriptPlayer):
                raise refuse_words(path, seat)
        return case

    @contextmanager
    def serve(self, cases: Sequence[PlayableCase]) -> Iterator[Engine]:
        """Return one engine that passes each seat's turns to its player's own."""
        with self.open(cases) as opened:
            yield opened.table

    @contextmanager
    def open(
        self,
        tables: Sequence[PlayableCase],
        alone: Sequence[Scenario] = (),
        *,
        script: MakeScript | None = None,
    ) -> Iterator[OpenTeam]:
        """Return the engines for joint cases and for cases of the role families, open for the block.

        `script` makes the scripted players of another joint game.
        """
        seats = list(dict.fromkeys([*ROLES, *(role for case in tables for role in list_roles(case))]))
        with ExitStack() as stack:
            open_api = _Endpoints(stack, self.api, self.ledger)
            at_table: dict[str, Route] = {}
            on_their_own: dict[str, Route] = {}
            served: dict[Player, Engine] = {}
            for seat in seats:
                player = self.seats.player_of(seat)
                match player:
                    case ApiPlayer():
                        if player not in served:
                            served[player] = open_api(player)
                        at_table[seat] = on_their_own[seat] = Route(engine=served[player], policy=seat)
                    case RunPlayer():
                        team = self.runs[player]
                        if player not in served:
                            served[player] = stack.enter_context(team.serve(tables))
                        at_table[seat] = on_their_own[seat] = Route(
                            engine=served[player],
                            policy=seat,
                            chat=team.chat,
                            most_tokens=team.sampling.max_completion_tokens,
                        )
                    case HumanPlayer():
                        if player not in served:
                            store = player.store
                            served[player] = PersonEngine() if store is None else WebPersonEngine(store)
                        at_table[seat] = on_their_own[seat] = Route(engine=served[player], policy=seat)
                    case ScriptPlayer():
                        policy = (
                            make_script(player.habit, seat, tables, asks=bool(self.questions))
                            if script is None
                            else script(player.habit, seat)
                        )
                        at_table[seat] = _route_script(policy, seat)
                        on_their_own[seat] = _route_script(make_solo_script(player.habit, seat, alone), seat)
                    case _:
                        assert_never(player)
            yield OpenTeam(table=RoutedEngine(at_table), alone=RoutedEngine(on_their_own), routes=at_table)

    def describe_usage(self) -> list[str]:
        """Say what the seats of API models took, one line for each and one for all."""
        lines, total = [], Usage()
        for seat in ROLES:
            player = self.seats.named.get(seat, self.seats.others)
            usage = self.ledger.sum_of(suffix=f"/{seat}")
            if isinstance(player, ApiPlayer) and usage.num_requests + usage.num_too_long:
                lines.append(
                    f"{seat:<10} {describe_usage(usage, self.api.find_price(player.model) is not None)}"
                )
                total = total.joined(usage)
        return [*lines, f"{'all':<10} {describe_usage(total, self.spent is not None)}"] if lines else []


def _route_script(policy: SeededPolicy, seat: str) -> Route:
    chat = PlainChat()
    return Route(engine=ScriptedEngine(chat, seeded={seat: policy}), policy=seat, chat=chat)


class _Endpoints:
    """Opens endpoints that share a cost limit, a file of replies and one event loop."""

    def __init__(self, stack: ExitStack, options: ApiOptions, ledger: Ledger) -> None:
        self._stack, self._options, self._ledger = stack, options, ledger
        self._loop: LoopThread | None = None
        self._replies: ReplyFile | None = None

    def __call__(self, player: ApiPlayer) -> ChatEngine:
        if self._loop is None:
            self._loop = LoopThread("endpoints")
            self._stack.callback(self._loop.close)
            if self._options.replies is not None:
                self._replies = self._stack.enter_context(ReplyFile(self._options.replies))
                self._ledger.budget.spent = self._replies.spent
        engine = ChatEngine(
            self._options.settle(player),
            loop=self._loop,
            shape=self._options.shape,
            replies=self._replies,
            ledger=self._ledger,
        )
        self._stack.callback(engine.close)
        return engine


def describe_usage(usage: Usage, is_priced: bool) -> str:
    """Write usage in one line, e.g. "12 requests, 8,120 tokens in, 940 out, cost 0.0297"."""
    words = [
        f"{usage.num_requests:,} requests",
        f"{usage.prompt_tokens:,} tokens in",
        f"{usage.completion_tokens:,} out",
        f"cost {usage.cost:.4f}" if is_priced else "cost unknown (no --api price)",
    ]
    if usage.num_without_usage:
        words.append(f"{usage.num_without_usage} replies without a count of tokens")
    if usage.num_too_long:
        words.append(f"{usage.num_too_long} prompts too long for the model")
    return ", ".join(words)
