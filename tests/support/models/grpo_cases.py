"""The role, the settings and the cases of tests of GRPO."""

from tiny_models import DIFFICULTIES

from scenarios.base import Scenario
from training.config.grpo_config import GrpoConfig
from training.data.demonstrations import role_scenario

ROLE = "coo"
CONFIG = GrpoConfig(
    max_steps=2, prompts_per_step=2, group_size=4, learning_rate=1e-3, max_turns=8, max_completion_tokens=640
)


def draw(count: int) -> list[Scenario]:
    return [role_scenario(ROLE, "train", 0, index, DIFFICULTIES, "full") for index in range(count)]
