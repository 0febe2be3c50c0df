"""A role's GRPO for tests: settings, cases, learners on tiny models, and steps of them."""

from collections.abc import Sequence
from typing import Any

from tiny_models import DIFFICULTIES, small_model, tiny_chat

from scenarios.base import Scenario
from training.config.rl_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.rl.loop import RLLearner
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer

ROLE = "coo"
CONFIG = GrpoConfig(
    max_steps=2, prompts_per_step=2, group_size=4, learning_rate=1e-3, max_turns=8, max_completion_tokens=640
)


def draw(count: int, role: str = ROLE) -> list[Scenario]:
    return [role_scenario(role, "train", 0, index, DIFFICULTIES, "full") for index in range(count)]


def make_solo(
    config: GrpoConfig = CONFIG, *, model: Any = None, chat: Any = None, role: str = ROLE, **options: Any
) -> RLLearner:
    """A learner of one role on a tiny model."""
    chat = chat or tiny_chat()
    models = {role: small_model() if model is None else model}
    player = SoloPlayer(config=config, chat=chat)
    return make_solo_learner(models, config, player=player, chat=chat, seed=0, **options)


def train(
    config: GrpoConfig = CONFIG, *, scenarios: Sequence[Scenario] = (), **options: Any
) -> tuple[Any, list[dict[str, float]]]:
    """The model after all steps, and the metrics of each."""
    learner, size = make_solo(config, **options), config.prompts_per_step
    scenarios = scenarios or draw(size * config.max_steps)
    log: list[dict[str, float]] = [
        learner.step(scenarios[step * size : (step + 1) * size]) for step in range(config.max_steps)
    ]
    return next(iter(learner.models.values())), log
