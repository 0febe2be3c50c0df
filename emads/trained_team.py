"""The team of a run after a stage, or of an exported folder, on the engine that it or the caller names."""

import sys
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
from simulator.engines.embedded.engine_check import check_engine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.run_config import EngineConfig, RunConfig
from training.data.demonstrations import team_scenario
from training.export.export import load_exported_models
from training.export.team_folder import is_team_folder, open_team_folder
from training.export.versions import describe_versions, find_changes
from training.models.base_model import quiet_libraries
from training.models.engine_factory import choose_engine, find_engine_base, serve_models
from training.models.weights import Team as Models
from training.models.weights import load_team as load_models
from training.runs.run_folder import Run
from training.stages.from_config import make_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTeam:
    """Models after one stage, with the config that trained them.

    Example: load_trained_team(Path("runs/demo"), "sft").label == "sft team of run demo"
    """

    source: str  # where it comes from, in words: "run demo"
    config: RunConfig
    stage: str
    engine: EngineConfig
    models: Models  # by role
    base: Path | None  # folder of the base model, where the engine reads it
    chat: Chat
    questions: int | None = None  # most questions of ReconcileGPT; None: as in training

    @property
    def label(self) -> str:
        return f"{self.stage} team of {self.source}"

    @property
    def stream(self) -> str:
        return f"{self.config.name}/{self.stage}"

    @property
    def sampling(self) -> Sampling:
        """Greedy, with the completion length of joint training."""
        return Sampling(temperature=0.0, max_completion_tokens=self.config.marl.max_completion_tokens)

    @property
    def rounds(self) -> int:
        return self.config.marl.rounds

    @property
    def weights(self) -> TeamRewardWeights:
        return self.config.team_reward

    @property
    def make_game(self) -> MakeGame:
        """The game in the style of prompts, and with the questions, that the run was trained on."""
        most = self.config.model.questions if self.questions is None else self.questions
        return partial(PlanGame, style=self.style, questions=most)

    @property
    def style(self) -> Style:
        return self.config.model.prompts

    @property
    def stop(self) -> None:
        return None

    def describe_usage(self) -> list[str]:
        """Nothing is asked of an endpoint."""
        return []

    def draw_case(self, index: int) -> TeamScenario:
        """Return the run's sealed test scenario of this index."""
        data = self.config.data
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
        return serve_models(
            self.config,
            self.models,
            self.stage,
            end_id=self.chat.end_id,
            base=self.base,
            engine=self.engine,
            constrained=True,
        )


def load_trained_team(
    path: Path, stage: str, engine: str | None = None, questions: int | None = None
) -> TrainedTeam:
    """Return the team of a run after a stage, or of an exported folder.

    Raises:
        UserError: no such run or folder, unknown engine, no sound weights of the stage, or an exported team
            that the embedded engine would play by other log-probabilities than the models' own.
    """
    quiet_libraries()
    if is_team_folder(path):
        return _load_exported(path, stage, engine, questions)
    run = Run.open(path)
    chosen = choose_engine(run.config.engine, engine)
    models, tokenizer = load_models(run, stage)
    return TrainedTeam(
        source=f"run {run.path.resolve().name}",
        config=run.config,
        stage=stage,
        engine=chosen,
        models=models,
        base=find_engine_base(run, chosen),
        chat=make_chat(tokenizer, run.config),
        questions=questions,
    )


def _load_exported(path: Path, stage: str, engine: str | None, questions: int | None) -> TrainedTeam:
    folder = open_team_folder(path)
    record = folder.record
    if stage != record.stage:
        raise UserError(
            f"{path} holds the team after {record.stage}, not after {stage}; export that stage too"
        )
    if changes := find_changes(record.versions, describe_versions(record.config.model)):
        print(
            f"note: {path} was exported by emads {record.versions.emads}, where {', '.join(changes)}"
            " were others; its figures do not hold here",
            file=sys.stderr,
        )
    models, tokenizer = load_exported_models(folder)
    chosen = choose_engine(record.config.engine, engine)
    if chosen.name == "transformers":
        check_engine(models)
    return TrainedTeam(
        source=f"exported {path.resolve().name}",
        config=record.config,
        stage=stage,
        engine=chosen,
        models=models,
        base=folder.base,
        chat=make_chat(tokenizer, record.config),
        questions=questions,
    )
