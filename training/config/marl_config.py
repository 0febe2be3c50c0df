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
    start_from: str | dict[str, str] | None = None
    """Another run's folder, or one per role: training goes on from its joint weights; without: from GRPO."""
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
    rate_factors: dict[str, Annotated[float, Field(gt=0, le=10)]] = Field(default={"reconcile": 0.2})
    """By how much the peak rates of single roles differ from learning_rate, as a factor."""
    frozen_roles: tuple[str, ...] = ()
    """Roles that play and are not trained."""
    rounds: Count = 1
    """Rounds of votes after the decision; 0 asks for none."""
    credit: MarlCreditConfig = MarlCreditConfig()
    guards: MarlGuardsConfig = MarlGuardsConfig()

    @model_validator(mode="after")
    def _check_marl(self) -> Self:
        played = self.scenarios_per_step * self.report_sets * self.decisions_per_set
        check_batch(played, "scenarios_per_step * report_sets * decisions_per_set")
        starts = self.start_from if isinstance(self.start_from, dict) else {}
        named = (
            ("rate_factors", self.rate_factors),
            ("frozen_roles", self.frozen_roles),
            ("start_from", starts),
        )
        for key, roles in named:
            for role in roles:
                if role not in TEAM_ROLES:
                    raise unknown(f"marl.{key}", role, sorted(TEAM_ROLES))
        if set(self.frozen_roles) >= set(TEAM_ROLES):
            raise ValueError("frozen_roles names every role: nothing would be trained")
        return self
