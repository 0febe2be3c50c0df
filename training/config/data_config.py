"""`data`: the scenarios and demonstrations of a run."""

from typing import Annotated

from pydantic import Field, field_validator

from training.config.section import Count, Difficulty, Place, Section

FIRST_GRPO_INDEX = 1_000_000  # of GRPO's training scenarios: far from the demonstrations
FIRST_MARL_INDEX = 2_000_000  # of joint training's cases, where it goes on from no other joint training


class DataConfig(Section):
    """Scenarios and demonstrations. Splits never share a scenario, whatever the seed."""

    seed: Place = 0
    """Seed of the scenario streams."""
    difficulties: tuple[Difficulty, ...] = Field(default=(1, 2), min_length=1)
    """Difficulties that scenarios cycle through, 1 (easiest) to 10."""
    num_demonstrations: Count = 4000
    """Demonstrations per role that SFT goes over again and again; 0 takes new ones always."""
    seat_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the supervised rows that show the role's seat in the team; the rest shows its own family."""
    replan_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the supervised rows that show a governed episode with a re-plan, for marl.protocol full."""

    @field_validator("difficulties")
    @classmethod
    def _check_difficulties(cls, difficulties: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(difficulties)) != len(difficulties):
            raise ValueError(f"{list(difficulties)} repeats a difficulty: name each one once")
        return difficulties
