"""The team of a run: its weights after a stage, on the engine that the run or the caller names."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roles.errors import UserError
from scenarios.team import PlanGame, Style, TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.run_config import EngineConfig
from training.data.demonstrations import team_scenario
from training.models.base_model import quiet_libraries
from training.models.engine_factory import choose_engine, serve
from training.models.weights import Team as Models
from training.models.weights import load_team as load_models
from training.runs.run_folder import Run
from training.stages.from_config import make_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTeam:
    """A run's models after one stage.

    Example: load_trained_team(Path("runs/demo"), "sft").label == "sft team of run demo"
    """

    run: Run
    stage: str
    engine: EngineConfig
    models: Models  # by role
    chat: Chat
    questions: int | None = None  # most questions of ReconcileGPT; None: as in training

    @property
    def label(self) -> str:
        return f"{self.stage} team of run {self.run.path.resolve().name}"

    @property
    def stream(self) -> str:
        return f"{self.run.config.name}/{self.stage}"

    @property
    def sampling(self) -> Sampling:
        """Greedy, with the completion length of joint training."""
        return Sampling(temperature=0.0, max_completion_tokens=self.run.config.marl.max_completion_tokens)

    @property
    def rounds(self) -> int:
        return self.run.config.marl.rounds

    @property
    def weights(self) -> TeamRewardWeights:
        return self.run.config.team_reward

    @property
    def make_game(self) -> MakeGame:
        """The game in the style of prompts, and with the questions, that the run was trained on."""
        config = self.run.config
        most = config.model.questions if self.questions is None else self.questions
        return partial(PlanGame, style=self.style, questions=most)

    @property
    def style(self) -> Style:
        return self.run.config.model.prompts

    @property
    def stop(self) -> None:
        return None

    def describe_usage(self) -> list[str]:
        """Nothing is asked of an endpoint."""
        return []

    def draw_case(self, index: int) -> TeamScenario:
        """Return the run's sealed test scenario of this index."""
        data = self.run.config.data
        return team_scenario("test", data.seed, index, data.difficulties)

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case.

        Raises:
            UserError: a damaged file, or a brief that the model has no positions for.
        """
        case = read_case(path)
        game = self.make_game(case)
        for role in case.seats:
            room = self.models[role].config.max_position_embeddings * 3 // 4
            brief = game.write_report_brief(role)
            used = len(self.chat.open(game.prompt_role(role), brief, with_tools=False))
            if used > room:
                raise UserError(
                    f"{path}: what {role} reads is {used} tokens, but this team's model has room for {room};"
                    " shorten the case, or play it with a larger model"
                )
        return case

    def serve(self, cases: Sequence[PlayableCase]) -> AbstractContextManager[Engine]:
        """Return an engine with every role's weights."""
        return serve(
            self.run,
            self.models,
            self.stage,
            end_id=self.chat.end_id,
            engine=self.engine,
            constrained=True,
        )


def load_trained_team(
    path: Path, stage: str, engine: str | None = None, questions: int | None = None
) -> TrainedTeam:
    """Return the run's team after a stage.

    Raises:
        UserError: no such run, unknown engine, no sound weights of the stage.
    """
    quiet_libraries()
    run = Run.open(path)
    chosen = choose_engine(run.config.engine, engine)
    models, tokenizer = load_models(run, stage)
    chat = make_chat(tokenizer, run.config)
    return TrainedTeam(run=run, stage=stage, engine=chosen, models=models, chat=chat, questions=questions)
