"""The reward of one role's trajectory from its verdict and its steps; weights are config, defaults here.

`default` pays a correct answer, short work and clean tool use, and charges unneeded steps. `rlvr` pays a
correct, parseable answer and charges every step. An answer that does not parse is a policy fault: 0 in both.
"""

import math
from collections.abc import Mapping
from typing import Any

from roles.base import FORMAT_FAILURES
from roles.errors import UserError, unknown
from scenarios.base import Verdict

PRESETS: dict[str, dict[str, float]] = {
    "default": {"correctness": 1.0, "efficiency": 0.3, "tool_quality": 0.2, "unnecessary_step": 0.1},
    "rlvr": {"correctness": 1.0, "format": 0.1, "step": 0.02},
}


def is_parseable(verdict: Verdict) -> bool:
    """Return whether the answer was one strict JSON object of the role's schema, right or wrong."""
    return verdict.failure not in FORMAT_FAILURES


def resolve_weights(preset: str, weights: Mapping[str, Any] | None) -> dict[str, float]:
    """The preset's weights with `weights` laid over them.

    Raises:
        UserError: an unknown preset or weight, or a weight that is not a finite number >= 0.
    """
    if preset not in PRESETS:
        raise unknown("reward preset", preset, sorted(PRESETS))
    return replace_weights(PRESETS[preset], weights, f"weight of reward preset {preset!r}")


def replace_weights(
    defaults: Mapping[str, float], weights: Mapping[str, Any] | None, what: str
) -> dict[str, float]:
    """The default weights with `weights` laid over them.

    Raises:
        UserError: an unknown weight (named as `what`), or one that is not a finite number >= 0.
    """
    resolved = dict(defaults)
    for name, value in (weights or {}).items():
        if name not in resolved:
            raise unknown(what, name, sorted(resolved))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UserError(f"reward weight {name!r} must be a finite number >= 0, got {value!r}")
        resolved[name] = float(value)
    return resolved


def role_reward(
    verdict: Verdict,
    *,
    num_steps: int,
    optimal_steps: int,
    max_steps: int,
    num_calls: int,
    num_valid_calls: int,
    preset: str = "default",
    weights: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Every component as it enters the sum (charges are negative), and their "total", clamped at 0.

    A step is one assistant turn. Efficiency counts only for the exact optimum in at most `optimal_steps`.
    Tool quality is valid calls per call beside an exact answer, 0 beside any other and without a call.
    The step charge of `rlvr` falls only on exact answers: it tells short right work from long right work and
    never pays for giving up.

    Raises:
        UserError: unknown preset or weight.
        ValueError: impossible counts.
    """
    if max_steps < 1 or optimal_steps < 1 or num_steps < 0 or not 0 <= num_valid_calls <= num_calls:
        raise ValueError(
            f"impossible counts: {num_steps} steps (optimal {optimal_steps}, at most {max_steps}), "
            f"{num_valid_calls} valid of {num_calls} calls"
        )
    weight = resolve_weights(preset, weights)
    parseable = is_parseable(verdict)
    components = {"correctness": weight["correctness"] * verdict.reward if parseable else 0.0}
    if preset == "rlvr":
        components["format"] = weight["format"] * parseable
        components["step"] = -weight["step"] * num_steps if verdict.exact else 0.0
    else:
        in_time = verdict.exact and num_steps <= optimal_steps
        share = num_valid_calls / num_calls if num_calls and verdict.exact else 0.0
        components["efficiency"] = (
            weight["efficiency"] * max(0.0, 1 - num_steps / max_steps) if in_time else 0.0
        )
        components["tool_quality"] = weight["tool_quality"] * share
        components["unnecessary_step"] = -weight["unnecessary_step"] * max(0, num_steps - optimal_steps)
    total = max(0.0, sum(components.values()))
    return components | {"total": total}
