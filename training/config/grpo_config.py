"""`grpo`: group-relative policy optimisation of each role alone, a team of one seat on the RL loop."""

from typing import Literal, Self

from pydantic import Field, model_validator

from scenarios.rewards import resolve_weights
from simulator.agents.agent_kinds import AgentKind
from training.config.rl_sections import RLConfig
from training.config.section import Count, GroupSize, PositiveCount, Share, Weight, check_batch


class GrpoConfig(RLConfig):
    """Group-relative policy optimisation of each role alone, on its own verifier."""

    max_steps: Count = 100
    """Batches of rollouts per role; 0 leaves the stage out."""
    prompts_per_step: PositiveCount = 8
    """Scenarios per step."""
    group_size: GroupSize = 8
    """Trajectories per scenario that are compared with each other, 2 or more."""
    trained_per_group: Count = 0
    """Trajectories of a group that are learnt from, whose rewards differ most (PODS); 2 or more, 0: all."""
    reward: Literal["default", "rlvr"] = "rlvr"
    """Role reward: `default` (efficiency and tool quality) or `rlvr` (correctness, format, steps)."""
    reward_weights: dict[str, Weight] = Field(default={"step": 0.0})
    """Weights that replace those of the preset, by component; the demo charges nothing for steps."""
    model_share: Share = 0.0
    """Share of the reward that the role's reward model scores (`emads train reward`); 0 needs none."""
    agent: AgentKind = "react"
    """Agent: `chat` (answers alone), `react` (with its tools), `code` (also Python in the sandbox)."""
    max_turns: PositiveCount = 10
    """Assistant turns before a trajectory is cut off."""
    max_failed_calls: PositiveCount = 1
    """Failed tool calls that cut a trajectory off; to learn to recover from errors takes 2 or more."""
    curriculum: bool = False
    """Begin with the easiest difficulty; the next one follows at a mean reward of .7; else they mix."""

    @property
    def max_row_tokens(self) -> int:
        """Most own tokens of a row: what loss `dr_grpo` divides by."""
        return self.max_turns * self.max_completion_tokens

    @model_validator(mode="after")
    def _check_grpo(self) -> Self:
        resolve_weights(self.reward, self.reward_weights)
        if self.trained_per_group == 1 or self.trained_per_group > self.group_size:
            raise ValueError(
                f"trained_per_group is {self.trained_per_group}: it must be 2 to {self.group_size}"
                " (group_size), or 0 to learn from all"
            )
        if self.trained_per_group and self.credit.estimator == "gae":
            raise ValueError("estimator gae compares no group: leave trained_per_group at 0")
        if self.curriculum and self.max_staleness:
            raise ValueError("curriculum chooses by the latest groups: leave max_staleness at 0")
        check_batch(self.prompts_per_step * self.group_size, "prompts_per_step * group_size")
        return self
