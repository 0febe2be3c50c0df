"""Weights of a run after a stage, or of an exported team, with all that playing them needs."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roles.errors import UserError
from scenarios.team import PlanGame, Style, TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.engines.embedded.engine_check import check_engine
from simulator.engines.embedded.own_pass import count_positions
from training.config.run_config import EngineConfig, RunConfig
from training.data.demonstrations import team_scenario
from training.export.export import describe_versions, find_changes, load_exported_models
from training.export.team_folder import is_team_folder, open_team_folder
from training.models.base_model import quiet_libraries
from training.models.engine_factory import choose_engine, find_engine_base, serve_models
from training.models.weights import Team as Models
from training.models.weights import load_team as load_models
from training.runs.run_folder import Run
from training.stages.from_config import make_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWeights:
    """Models after one stage, with the config that trained them.

    Example: load_run_weights(Path("runs/demo"), "sft").label == "sft team of run demo"
    """

    source: str  # where they come from, in words: "run demo"
    config: RunConfig
    stage: str
    engine: EngineConfig
    models: Models  # by role
    base: Path | None  # folder of the base model, where the engine reads it
    chat: Chat

    @property
    def label(self) -> str:
        return f"{self.stage} team of {self.source}"

    @property
    def style(self) -> Style:
        """The style of prompts that the run was trained on."""
        return self.config.model.prompts

    @property
    def sampling(self) -> Sampling:
        """Greedy, with the completion length of joint training."""
        return Sampling(temperature=0.0, max_completion_tokens=self.config.marl.max_completion_tokens)

    def draw_case(self, index: int) -> TeamScenario:
        """Return the run's sealed test scenario of this index."""
        return team_scenario(self.config.data, "test", index)

    def check_room(self, case: FreeCase, path: Path) -> None:
        """Refuse a written case whose briefs leave the model too few positions to answer.

        Raises:
            UserError: names the file, the seat and both sizes in tokens.
        """
        game = partial(PlanGame, style=self.style, questions=self.config.model.questions)(case)
        for role in case.seats:
            room = count_positions(self.models[role].config) * 3 // 4
            used = len(
                self.chat.open(game.prompt_role(role), game.write_report_brief(role), with_tools=False)
            )
            if used > room:
                raise UserError(
                    f"{path}: what {role} reads is {used} tokens, but this team's model has room for {room};"
                    " shorten the case, or play it with a larger model"
                )

    def serve(self, cases: Sequence[PlayableCase]) -> AbstractContextManager[Engine]:
        """Return an engine with every role's weights."""
        return serve_models(
            self.config,
            self.models,
            self.stage,
            end_id=self.chat.end_id,
            base=self.base,
            engine=self.engine,
        )


def load_run_weights(path: Path, stage: str, engine: str | None = None) -> RunWeights:
    """Return the weights of a run after a stage, or of an exported folder.

    Raises:
        UserError: no such run or folder, unknown engine, no sound weights of the stage, or an exported team
            that the embedded engine would play by other log-probabilities than the models' own.
    """
    quiet_libraries()
    models: Models
    if not is_team_folder(path):
        run = Run.open(path)
        chosen = choose_engine(run.config, engine)
        models, tokenizer = load_models(run, stage)
        config, base, source = run.config, find_engine_base(run, chosen), f"run {run.path.resolve().name}"
    else:
        folder = open_team_folder(path)
        config, base, source = folder.record.config, folder.base, f"exported {path.resolve().name}"
        if stage != folder.record.stage:
            raise UserError(
                f"{path} holds the team after {folder.record.stage}, not after {stage}; export that stage too"
            )
        if changes := find_changes(folder.record.versions, describe_versions(config.model)):
            print(
                f"note: {path} was exported by emads {folder.record.versions.emads}, where"
                f" {', '.join(changes)} were others; its figures do not hold here",
                file=sys.stderr,
            )
        models, tokenizer = load_exported_models(folder)
        chosen = choose_engine(config, engine)
        if chosen.name == "transformers":
            check_engine(models)
    return RunWeights(
        source=source,
        config=config,
        stage=stage,
        engine=chosen,
        models=models,
        base=base,
        chat=make_chat(tokenizer, config),
    )
