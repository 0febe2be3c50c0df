"""Conflicts between the specialists' reports: options that some recommend and others do not, or rule out."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from roles.team import SpecialistReport

Name = Annotated[str, Field(min_length=1, max_length=500)]


class Conflict(BaseModel):
    """One option that a seat recommends and another seat does not.

    Example: Conflict(option="B", wanted_by=["cto", "cost"], ruled_out_by=["risk"])
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    option: Name
    wanted_by: list[Name]  # seats that recommend it
    ruled_out_by: list[Name]  # seats whose hard limit it breaks; empty: the others only prefer another option

    @property
    def is_hard(self) -> bool:
        """Whether a hard limit stands against it."""
        return bool(self.ruled_out_by)


def find_conflicts(options: Sequence[str], reports: Mapping[str, SpecialistReport | None]) -> list[Conflict]:
    """List every recommended option, in order, if recommendations differ or one of them is ruled out."""
    heard = {role: report for role, report in reports.items() if report is not None}
    wanted = {option: [role for role, report in heard.items() if report.pick == option] for option in options}
    conflicts = [
        Conflict(
            option=option,
            wanted_by=roles,
            ruled_out_by=[role for role, report in heard.items() if option in report.veto],
        )
        for option, roles in wanted.items()
        if roles
    ]
    return conflicts if len(conflicts) > 1 or any(conflict.is_hard for conflict in conflicts) else []
