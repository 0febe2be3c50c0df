"""`marl`: joint multi-agent RL of the whole team."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roles.errors import unknown
from roles.team import TEAM_ROLES
from training.config.rl_sections import CreditConfig, GuardsConfig, RLConfig
from training.config.section import (
    Count,
    GroupSize,
    PositiveCount,
    Rate,
    check_batch,
)


class MarlCreditConfig(CreditConfig):
    """Credit of joint training: from the team reward to each role's advantages."""

    scheme: Literal["shared", "cross_valued", "shapley"] = "cross_valued"
    """Scheme from team reward to each role's score; training/rl/credit/schemes.py has a class for each."""


class MarlGuardsConfig(GuardsConfig):
    """Validation of joint training."""

    validate_every: Count = 20
    """Joint steps between validations by sampled plays; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 200
    """Team cases of the validation split that are played each time."""


class MarlConfig(RLConfig):
    """Joint multi-agent RL of the whole team on the team reward."""

    max_steps: Count = 60
    """Joint steps; 0 leaves the stage out."""
    start_from: str | None = None
    """Another run's folder, from whose joint weights training goes on; null: from GRPO's."""
    scenarios_per_step: PositiveCount = 24
    """Team scenarios per step."""
    report_sets: GroupSize = 4
    """Sets of reports per scenario; a specialist's reports are compared across them, 2 or more."""
    decisions_per_set: GroupSize = 2
    """ReconcileGPT's decisions on each set of reports, 2 or more; protocol full plays one course per set."""
    protocol: Literal["assess", "full"] = "assess"
    """Episodes to play: reports, decision, votes; or governed ones with re-plans, one per report set."""
    learning_rate: Rate = 1.5e-3
    """Peak learning rate."""
    rate_factors: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(default={"reconcile": 0.2})
    """Factors by which roles' rates differ from learning_rate; a role with 0 plays and never learns."""
    rounds: Count = 1
    """Rounds of votes after the decision; 0 asks for none."""
    credit: MarlCreditConfig = MarlCreditConfig()
    guards: MarlGuardsConfig = MarlGuardsConfig()

    @model_validator(mode="after")
    def _check_marl(self) -> Self:
        played = self.scenarios_per_step * self.report_sets * self.decisions_per_set
        check_batch(played, "scenarios_per_step * report_sets * decisions_per_set")
        for role in self.rate_factors:
            if role not in TEAM_ROLES:
                raise unknown("marl.rate_factors", role, sorted(TEAM_ROLES))
        if not any(self.rate_factors.get(role, 1.0) for role in TEAM_ROLES):
            raise ValueError("rate_factors is 0 for every role: nothing would be trained")
        return self
