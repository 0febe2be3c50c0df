"""The team that plays cases: in every seat a run's weights, a script, an API model or a person.

Importing this module imports no torch; a seat that a run plays does.
"""

import difflib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from emads.seats import SCRIPTED, STAGES
from emads.seats.person import PersonEngine, WebPersonEngine
from emads.seats.players import (
    ApiOptions,
    ApiPlayer,
    HumanPlayer,
    Player,
    RunPlayer,
    ScriptPlayer,
    Seats,
    read_seats,
)
from roles.errors import UserError, check_number, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES, families
from scenarios.team import PlanGame, Style, TeamScenario, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.scripted_policies import (
    BASELINES,
    baseline_team,
    oracle_reconciler,
    oracle_solo,
    oracle_specialist,
    oracle_team,
)
from simulator.agents.suite_scripts import MakeScript
from simulator.chat import Chat, MessageChat, PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.chat_engine import ChatEngine, EndpointUsage, Ledger, ReplyFile
from simulator.engines.openai.endpoint import Budget
from simulator.engines.routed import Route, RoutedEngine
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.export.atomic_files import explain_os_errors
from simulator.game import MakeGame
from simulator.graph.seating import list_roles
from simulator.reward import TeamRewardWeights

if TYPE_CHECKING:
    from emads.run_weights import RunWeights

SCRIPTED_DIFFICULTIES = (1, 2)
MOST_TOKENS = 20_000  # of a turn: more than any player but a script takes, and a script's are characters


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTeam:
    """The engines of a team while it plays; transcripts are those of `chat`.

    Example: with team.open(tables, alone) as opened: opened.table
    """

    table: Engine  # every seat at joint cases
    alone: Engine  # every role on its own family
    routes: Mapping[str, Route]  # of the table, by seat
    chat: Chat = field(default_factory=MessageChat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Players by seat. Test cases, rounds and reward weights are those of the first run among them.

    Example: load_team("scripted").label == "scripted team"
    """

    seats: Seats
    api: ApiOptions = field(default_factory=ApiOptions)
    runs: Mapping[RunPlayer, "RunWeights"] = field(default_factory=dict)
    ledger: Ledger = field(
        default_factory=lambda: Ledger(budget=Budget(max_cost=None))
    )  # of all that was asked
    questions: int | None = None  # most questions of ReconcileGPT; None: as trained, else one; scripts none

    @property
    def home(self) -> "RunWeights | None":
        """The run whose test cases, rounds and reward weights hold; None where scripts have theirs."""
        return next(iter(self.runs.values()), None)

    @property
    def sole_run(self) -> "RunWeights | None":
        """The run that plays every seat; None in any other team."""
        return self.home if len(self.runs) == len(self.seats.players) == 1 else None

    @property
    def is_scripted(self) -> bool:
        """True if experts who draw a habit for every case sit in all seats."""
        return self.seats.players == [ScriptPlayer()]

    @property
    def label(self) -> str:
        """The team in words, for minutes and tables."""
        if self.sole_run is not None:
            return self.sole_run.label
        return "scripted team" if self.is_scripted else f"team of {self.seats.label}"

    @property
    def stream(self) -> str:
        """Begins the names of its sessions: the same stream samples the same."""
        if self.sole_run is not None:
            return f"{self.sole_run.config.name}/{self.sole_run.stage}"
        return SCRIPTED if self.is_scripted else f"seats/{self.seats.label}"

    @property
    def chat(self) -> Chat:
        """The reader of the transcripts of `serve`'s engine."""
        if self.sole_run is not None:
            return self.sole_run.chat
        return PlainChat() if self.is_scripted else MessageChat()

    @property
    def sampling(self) -> Sampling:
        """Greedy."""
        if self.sole_run is not None:
            return self.sole_run.sampling
        return Sampling(temperature=0.0, max_completion_tokens=MOST_TOKENS)

    @property
    def rounds(self) -> int:
        """Rounds of votes at most, in the protocol `assess`."""
        return 1 if self.home is None else self.home.config.marl.rounds

    @property
    def weights(self) -> TeamRewardWeights:
        """Weights of the team reward."""
        return TeamRewardWeights() if self.home is None else self.home.config.team_reward

    @property
    def make_game(self) -> MakeGame:
        """Makes the game of a case: full prompts, but for seats of runs that were trained on short ones."""
        chair = self.seats.player_of(RECONCILER)
        most = self.questions
        if most is None and isinstance(chair, RunPlayer):
            most = self.runs[chair].config.model.questions
        if self.sole_run is not None:
            return partial(PlanGame, style=self.sole_run.style, questions=most)
        own: dict[str, Style] = {
            seat: "short"
            for seat in ROLES
            if isinstance(player := self.seats.player_of(seat), RunPlayer)
            and self.runs[player].style == "short"
        }
        return partial(PlanGame, questions=most, own_styles=own)

    @property
    def stop(self) -> str | None:
        """The reason for which endpoints were asked no more; None where nothing stopped the play."""
        return self.ledger.stop

    @property
    def spent(self) -> float | None:
        """The cost of all endpoints, stored replies included; None if a price is not given."""
        players = [player for player in self.seats.players if isinstance(player, ApiPlayer)]
        is_priced = all(self.api.find_price(player.model) is not None for player in players)
        return self.ledger.budget.spent if is_priced else None

    def families_of(self, seat: str) -> Mapping[str, Family]:
        """Return the role families in the prompts that the seat's player reads."""
        player = self.seats.player_of(seat)
        return families(self.runs[player].style if isinstance(player, RunPlayer) else "full")

    def draw_case(self, index: int) -> TeamScenario:
        """Return the test scenario of this index; without a run, difficulties 1 and 2 take turns."""
        if self.home is not None:
            return self.home.draw_case(index)
        return generate("test", 0, index, SCRIPTED_DIFFICULTIES[index % len(SCRIPTED_DIFFICULTIES)])

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case, with as many offers per option as the team's run was trained on.

        Raises:
            UserError: a damaged file, a brief that a run's model has no positions for, or words alone for a
                seat that a script plays.
        """
        case = read_case(path)
        if self.home is not None:
            most = self.home.config.data.offers_per_option
            case = replace(case, public=replace(case.public, offers_per_option=most))
        for run in self.runs.values():
            run.check_room(case, path)
        for seat in case.list_unlisted():
            if isinstance(self.seats.player_of(seat), ScriptPlayer):
                raise UserError(
                    f"{path}: seats.{seat} gives words alone, and the scripted experts read lists;"
                    " add upgrades, needs or veto, or play it with a model that reads words"
                )
        return case

    @contextmanager
    def serve(self, cases: Sequence[PlayableCase]) -> Iterator[Engine]:
        """Open the engine that speaks for every seat in these cases, in the team's own chat."""
        if self.sole_run is not None:
            with self.sole_run.serve(cases) as engine:
                yield engine
        elif self.is_scripted:
            yield ScriptedEngine(self.chat, seeded=oracle_team(cases, asks=bool(self.questions)))
        else:
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
        """Open engines for joint cases and for cases of the role families, each seat passed to its player.

        `script` makes the scripted players of another joint game.
        """
        seats = dict.fromkeys([*ROLES, *(role for case in tables for role in list_roles(case))])
        plain = PlainChat()
        with ExitStack() as stack:
            at_table: dict[str, Route] = {}
            scripts_alone: dict[str, Route] = {}
            served: dict[Player, Engine] = dict(self._open_endpoints(stack))
            for seat in seats:
                player = self.seats.player_of(seat)
                chat, most_tokens = None, None
                match player:
                    case ScriptPlayer():
                        if script is None:
                            policy = make_script(player.habit, seat, tables, asks=bool(self.questions))
                        else:
                            policy = script(player.habit, seat)
                        solo = make_solo_script(player.habit, seat, alone)
                        at_table[seat], scripts_alone[seat] = (
                            Route(engine=ScriptedEngine(plain, seeded={seat: one}), policy=seat, chat=plain)
                            for one in (policy, solo)
                        )
                        continue
                    case ApiPlayer():
                        engine = served[player]
                    case RunPlayer():
                        run = self.runs[player]
                        chat, most_tokens = run.chat, run.sampling.max_completion_tokens
                        engine = served.get(player) or stack.enter_context(run.serve(tables))
                    case HumanPlayer(store=store):
                        engine = served.get(player) or (
                            PersonEngine() if store is None else WebPersonEngine(store)
                        )
                    case _:
                        assert_never(player)
                served[player] = engine
                at_table[seat] = Route(engine=engine, policy=seat, chat=chat, most_tokens=most_tokens)
            alone_too = RoutedEngine({**at_table, **scripts_alone})
            yield OpenTeam(table=RoutedEngine(at_table), alone=alone_too, routes=at_table)

    def _open_endpoints(self, stack: ExitStack) -> Iterator[tuple[ApiPlayer, ChatEngine]]:
        """Open the endpoints of API models; they share a cost limit, a file of replies and a loop."""
        models = [player for player in self.seats.players if isinstance(player, ApiPlayer)]
        if not models:
            return
        loop, replies = LoopThread("endpoints"), None
        stack.callback(loop.close)
        if self.api.replies is not None:
            with explain_os_errors("write", self.api.replies):
                replies = stack.enter_context(ReplyFile(self.api.replies))
            self.ledger.budget.spent = replies.spent
        for player in models:
            settings, shape = self.api.settle(player), self.api.shape
            engine = ChatEngine(settings, loop=loop, shape=shape, replies=replies, ledger=self.ledger)
            stack.callback(engine.close)
            yield player, engine

    def describe_usage(self) -> list[str]:
        """Say what the seats of API models took, one line for each and one for all; nothing without such."""
        lines, total = [], EndpointUsage()
        for seat in ROLES:
            player = self.seats.named.get(seat, self.seats.others)
            usage = self.ledger.sum_of(suffix=f"/{seat}")
            if isinstance(player, ApiPlayer) and usage.num_requests + usage.num_too_long:
                is_priced = self.api.find_price(player.model) is not None
                lines.append(f"{seat:<10} {describe_usage(usage, is_priced)}")
                total = total.joined(usage)
        return [*lines, f"{'all':<10} {describe_usage(total, self.spent is not None)}"] if lines else []


def describe_usage(usage: EndpointUsage, is_priced: bool) -> str:
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


def check_habits(seats: Seats) -> None:
    """Refuse a habit that its seat does not have.

    Raises:
        UserError: names seat, habit and those that are known.
    """
    for seat in ROLES:
        player = seats.player_of(seat)
        if isinstance(player, ScriptPlayer) and player.habit is not None:
            known = [*(FUNDING_HABITS if seat == RECONCILER else REPORT_HABITS), *BASELINES]
            if player.habit not in known:
                raise unknown(f"habit of {seat}", player.habit, known)


def make_script(
    habit: str | None, seat: str, cases: Sequence[PlayableCase], *, asks: bool = False
) -> SeededPolicy:
    """Return the policy of a seat in joint cases; habit None: every case draws one.

    `asks`: whether an expert ReconcileGPT puts questions to the seats.
    """
    if habit is not None and habit in BASELINES:
        return baseline_team(cases, habit).get(seat, _sit_out)
    if seat == RECONCILER:
        return oracle_reconciler(habit=habit, asks=asks)
    return oracle_specialist(cases, seat, habit=habit)


def make_solo_script(
    habit: str | None,
    role: str,
    scenarios: Sequence[Scenario],
    *,
    families: Mapping[str, Family] = FAMILIES,
) -> SeededPolicy:
    """Return the policy of a role on its own family: a baseline of that name, else the expert."""
    own = [scenario for scenario in scenarios if scenario.role == role]
    if habit is None or habit not in BASELINES:
        play = oracle_solo(own, families=families)
        return lambda transcript, rng: play(transcript)

    def answer(transcript: str, rng: random.Random) -> str:
        for scenario in own:
            if scenario.brief in transcript:
                baselines = families[scenario.family].baselines
                if habit not in baselines:
                    raise UserError(f"{role} alone has no baseline {habit!r} (known: {', '.join(baselines)})")
                return baselines[habit](scenario, rng)
        raise ValueError(f"the transcript holds no brief of {role}")

    return answer


def _sit_out(transcript: str, rng: random.Random) -> str:
    raise ValueError("a seat speaks that is in none of the cases")


def load_team(
    source: str | Path | None = None,
    *,
    stage: str | None = None,
    engine: str | None = None,
    seats: Sequence[str] | Mapping[str, str] | Seats = (),
    api: ApiOptions | None = None,
    questions: int | None = None,
) -> Team:
    """Return the scripted team for "scripted", else the team of the run, or the exported team, in `source`.

    `stage`: its weights after base, sft, grpo or marl; None: marl, or what was exported. `engine`:
    transformers or vllm, default the run's own. `seats` give seats other players: "cto=openai:MODEL@URL",
    "risk=scripted", "coo=run:RUN/STAGE", "all=...", or a dict such as {"all": "scripted"}; without `source`
    they must name all. `api`: how endpoints are asked.
    `questions`: most questions of ReconcileGPT per case; None: as the run was trained, one with full prompts.
    A scripted ReconcileGPT asks only where a number is given.

    Raises:
        UserError: no such run, unknown stage, engine, seat or player, no sound weights of the stage, a
            damaged folder.

    Examples:
        >>> load_team("scripted").label
        'scripted team'
        >>> load_team(seats=["all=scripted", "cto=scripted:lean"]).label
        'team of cto=scripted:lean, others scripted'
    """
    if isinstance(seats, str):
        raise UserError(f"seats {seats!r} must be a list or a dict: [{seats!r}]")
    if isinstance(seats, Mapping):
        seats = [f"{seat}={player}" for seat, player in seats.items()]
    chosen = seats if isinstance(seats, Seats) else read_seats(seats)
    if source is not None and not isinstance(source, str | Path):
        raise UserError(f'source {source!r} must be "scripted" or the folder of a run or an exported team')
    if questions is not None:
        check_number("questions", questions, 0)
    if stage is not None and stage not in STAGES:
        raise unknown("stage", stage, list(STAGES))
    if source is None and not chosen.players:
        raise UserError('nobody plays: name a run, or "scripted", or players by seat')
    if source is not None:
        chosen = chosen.or_else(_read_source(source, stage))
    for role in ROLES:
        chosen.player_of(role)
    if engine is not None and str(source) == SCRIPTED:
        raise UserError(f"engine {engine!r} goes with a run: the scripted team needs none")
    api = api or ApiOptions()
    api.check([player for player in chosen.players if isinstance(player, ApiPlayer)])
    check_habits(chosen)
    return Team(
        seats=chosen,
        api=api,
        runs={player: _load(player, engine) for player in chosen.players if isinstance(player, RunPlayer)},
        ledger=Ledger(budget=Budget(max_cost=api.max_cost)),
        questions=questions,
    )


def _read_source(source: str | Path, stage: str | None) -> Player:
    if str(source) == SCRIPTED:
        return ScriptPlayer()
    if not Path(source).exists() and difflib.get_close_matches(str(source), [SCRIPTED]):
        raise UserError(f"no run in {source}, and no such team; did you mean {SCRIPTED!r}?")
    from training.export.team_folder import find_stage  # half a second of schemas

    return RunPlayer(Path(source), stage or find_stage(Path(source)))


def _load(player: RunPlayer, engine: str | None) -> "RunWeights":
    from emads.run_weights import load_run_weights

    return load_run_weights(player.run, player.stage, engine)
