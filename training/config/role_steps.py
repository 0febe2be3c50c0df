"""Steps of a stage that trains each role alone: as many for all, or some roles' own number."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from roles.errors import unknown
from roles.registry import ROLES
from training.config.section import Count, Section


class RoleStageConfig(Section):
    """A section whose stage trains one role at a time."""

    stage: ClassVar[str]
    """Name of the section, for messages."""

    max_steps: Count = 0
    """Optimizer steps per role."""
    role_steps: dict[str, Count] = Field(default={})
    """Steps of single roles in place of max_steps: {reconcile: 1200}."""

    def steps_of(self, role: str) -> int:
        """Optimizer steps of a role."""
        return self.role_steps.get(role, self.max_steps)

    def list_steps(self) -> list[tuple[str, int]]:
        """Every number of steps that is set, with its key."""
        single = [(f"{self.stage}.role_steps.{role}", steps) for role, steps in self.role_steps.items()]
        return [(f"{self.stage}.max_steps", self.max_steps), *single]

    @model_validator(mode="after")
    def _check_role_steps(self) -> Self:
        for role in self.role_steps:
            if role not in ROLES:
                raise unknown(f"{self.stage}.role_steps", role, list(ROLES))
        return self
