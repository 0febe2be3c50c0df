"""The gates of a run: conditions on its summary that make it a success, built in or from a file.

A stage or number that a gate needs and does not find fails that gate; nothing passes by being absent.
Gates on measured changes are not judged on fewer than MIN_SCENARIOS test scenarios.
"""

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from roles.errors import UserError
from roles.team import TEAM_ROLES
from scenarios.written.strict_yaml import explain_fault, parse_located_yaml, read_user_text

MIN_SCENARIOS = 300
MAX_GREEDY_LOSS = 0.02  # greedy score that GRPO may cost a role
MIN_TEAM_GAIN = 0.05
MAX_OWN_LOSS = 0.05  # own score that joint training may cost a role
MIN_SIGNAL = 0.02  # share of groups or rows with an advantage, under which a stage has learnt from nothing
MISSING = "missing: "
_NEEDED_STAGES = ("random", "sft", "grpo", "marl", "oracle")
Summary = Mapping[str, Any]
Check = Callable[[Summary], tuple[bool, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGate:
    """One condition on a run.

    Example: RunGate(name="team_gain", passed=True, detail="sampled +0.11 [+0.09, +0.13]")
    """

    name: str
    passed: bool | None  # None: not judged, there are too few scenarios for it
    detail: str  # the numbers behind it, or what is missing


class _MissingError(Exception):
    """A number that a gate needs is not in the summary."""


class _NotPlayedError(Exception):
    """A gate judges greedy play, and there is none by the config."""


def check_gates(summary: Summary) -> list[RunGate]:
    """Return all gates of one seed's summary, in a fixed order; never raises on an incomplete summary.

    Gates on measured changes are not judged where there are too few scenarios; one that misses a number stays
    red all the same: something was not done.
    """
    gates = []
    for name, check in GATES.items():
        passed: bool | None
        try:
            passed, detail = check(summary)
        except _MissingError as error:
            passed, detail = False, f"{MISSING}{error}"
        except _NotPlayedError:
            passed, detail = None, "not judged: nothing was played greedily (evaluation.greedy)"
        gates.append(RunGate(name=name, passed=passed, detail=detail))
    (size,) = [gate for gate in gates if gate.name == "enough_scenarios"]
    if size.passed or size.detail.startswith(MISSING):
        return gates
    return [
        RunGate(name=gate.name, passed=None, detail=f"too few scenarios: {size.detail}")
        if gate.name in MEASURED_GATES and not gate.detail.startswith(MISSING)
        else gate
        for gate in gates
    ]


def failed_gates(summary: Summary) -> list[str]:
    """Names of the gates that a stored summary fails, over all its seeds ("seed 3: team_gain")."""
    return _list_gates(summary, passed=False)


def unjudged_gates(summary: Summary) -> list[str]:
    """Names of the gates that a stored summary had too few scenarios for, over all its seeds."""
    return _list_gates(summary, passed=None)


def _list_gates(summary: Summary, *, passed: bool | None) -> list[str]:
    seeds = summary.get("seeds")
    if not seeds:
        return [gate["name"] for gate in summary["gates"] if gate["passed"] is passed]
    return [f"seed {one['seed']}: {name}" for one in seeds for name in _list_gates(one, passed=passed)]


def _sft_above_random(summary: Summary) -> tuple[bool, str]:
    lows = {role: _number(summary, "roles", role, "sft", "low") for role in TEAM_ROLES}
    highs = {role: _number(summary, "roles", role, "random", "high") for role in TEAM_ROLES}
    detail = ", ".join(f"{role} {lows[role]:.3f} > {highs[role]:.3f}" for role in TEAM_ROLES)
    return all(lows[role] > highs[role] for role in TEAM_ROLES), f"SFT low > random high: {detail}"


def _grpo_above_sft(summary: Summary) -> tuple[bool, str]:
    changes, detail = _role_changes(summary, "grpo-sft")
    num_above = sum(change["low"] > 0 for change in changes)
    needed = max(1, len(TEAM_ROLES) - 1)
    passed = num_above >= needed and all(change["high"] >= 0 for change in changes)
    return passed, f"{num_above} of {len(TEAM_ROLES)} above (>= {needed}): {detail}"


def _roles_above_heuristic(summary: Summary) -> tuple[bool, str]:
    changes, detail = _role_changes(summary, "marl-heuristic")
    return all(change["low"] > 0 for change in changes), f"low > 0: {detail}"


def _mean_changes_above(what: str, name: str, least: float) -> Check:
    """Every role's mean change is no less than `least`."""

    def check(summary: Summary) -> tuple[bool, str]:
        if name.endswith("_greedy"):
            _check_greedy(summary, "roles", TEAM_ROLES[0], "grpo")
        means = {role: _number(summary, "roles", role, "paired", name, "mean") for role in TEAM_ROLES}
        detail = ", ".join(f"{role} {mean:+.3f}" for role, mean in means.items())
        return min(means.values()) >= least, f"{what} change >= {least}: {detail}"

    return check


def _check_greedy(summary: Summary, *stage: str) -> None:
    """Leave a gate unjudged where the stage was scored, but never played greedily."""
    if _value(summary, *stage, "greedy") is None:
        raise _NotPlayedError


def _team_gain(summary: Summary) -> tuple[bool, str]:
    sampled = _change(summary, "team", "paired", "marl-grpo")
    _check_greedy(summary, "team", "grpo")
    greedy = _change(summary, "team", "paired", "marl-grpo_greedy")
    passed = all(change["mean"] >= MIN_TEAM_GAIN and change["low"] > 0 for change in (sampled, greedy))
    return passed, f"sampled {_signed(sampled)}, greedy {_signed(greedy)}; both >= {MIN_TEAM_GAIN}, low > 0"


def _enough_scenarios(summary: Summary) -> tuple[bool, str]:
    for stage in _NEEDED_STAGES:
        for role in TEAM_ROLES:
            _number(summary, "roles", role, stage, "n")
        if stage != "oracle":
            _number(summary, "team", stage, "n")
    counts = {
        f"{owner} {stage}": int(_number(stages, stage, "n"))
        for owner, stages in (*summary["roles"].items(), ("team", summary["team"]))
        for stage in stages
        if stage != "paired"
    }
    smallest = min(counts, key=lambda name: counts[name])
    least = counts[smallest]
    return least >= MIN_SCENARIOS, f"smallest n >= {MIN_SCENARIOS}: {least} ({smallest})"


def _oracle_is_one(summary: Summary) -> tuple[bool, str]:
    scores = {role: _number(summary, "roles", role, "oracle", "mean") for role in TEAM_ROLES}
    detail = ", ".join(f"{role} {score!r}" for role, score in scores.items())
    return all(score == 1 for score in scores.values()), f"exactly 1: {detail}"


def _weights_changed(summary: Summary) -> tuple[bool, str]:
    places = [(stage, role) for stage in ("sft", "grpo", "marl") for role in TEAM_ROLES]
    frozen = ["/".join(place) for place in places if _value(summary, "weights_changed", *place) is not True]
    return not frozen, f"unchanged: {', '.join(frozen)}" if frozen else f"all {len(places)} changed"


def _gradient_signal(summary: Summary) -> tuple[bool, str]:
    places = [(stage, role) for stage in ("grpo", "marl") for role in TEAM_ROLES]
    shares = {"/".join(place): _number(summary, "signal", *place) for place in places}
    detail = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    return min(shares.values()) >= MIN_SIGNAL, f"share with an advantage >= {MIN_SIGNAL}: {detail}"


GATES: dict[str, Check] = {
    "sft_above_random": _sft_above_random,
    "grpo_above_sft": _grpo_above_sft,
    "grpo_greedy_kept": _mean_changes_above("greedy", "grpo-sft_greedy", -MAX_GREEDY_LOSS),
    "roles_above_heuristic": _roles_above_heuristic,
    "team_gain": _team_gain,
    "own_scores_kept": _mean_changes_above("own score", "marl-grpo", -MAX_OWN_LOSS),
    "enough_scenarios": _enough_scenarios,
    "oracle_is_one": _oracle_is_one,
    "weights_changed": _weights_changed,
    "gradient_signal": _gradient_signal,
}
MEASURED_GATES = tuple(GATES)[:7]


def _value(tree: Any, *path: str) -> Any:
    for depth, key in enumerate(path):
        if not isinstance(tree, Mapping) or key not in tree:
            near = difflib.get_close_matches(key, list(tree), n=1) if isinstance(tree, Mapping) else []
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _MissingError(f"{'.'.join(path[:depth]) or 'the run'} has no {key!r}{hint}")
        tree = tree[key]
    return tree


def _number(tree: Any, *path: str) -> float:
    value = _value(tree, *path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _MissingError(f"{'.'.join(path)} is no number")
    return float(value)


def _change(tree: Any, *path: str) -> dict[str, float]:
    return {key: _number(tree, *path, key) for key in ("mean", "low", "high")}


def _role_changes(summary: Summary, name: str) -> tuple[list[dict[str, float]], str]:
    """The change of every role, and all of them in words."""
    changes = {role: _change(summary, "roles", role, "paired", name) for role in TEAM_ROLES}
    return list(changes.values()), ", ".join(f"{role} {_signed(one)}" for role, one in changes.items())


def _signed(change: Mapping[str, float]) -> str:
    return f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"


LIMITS = {
    "at_least": (">=", operator.ge),
    "at_most": ("<=", operator.le),
    "above": (">", operator.gt),
    "below": ("<", operator.lt),
}
Number = Annotated[float, Field(allow_inf_nan=False)]


class GateRule(BaseModel):
    """One threshold, or several, on one number.

    Example: GateRule(metric="team.marl.mean", at_least=0.7)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    metric: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$", max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    above: Number | None = None
    below: Number | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if all(getattr(self, limit) is None for limit in LIMITS):
            raise ValueError(f"gives no threshold: add one of {', '.join(LIMITS)}")
        return self


class _GateFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    gates: Annotated[list[GateRule], Field(min_length=1, max_length=1000)]


def read_gate_file(path: Path) -> list[GateRule]:
    """Return the gates of a file.

    Raises:
        UserError: cannot be read, malformed, unknown key, no threshold; names file and line.
    """
    text = read_user_text(path, "gates")
    located = parse_located_yaml(text, str(path))
    if not isinstance(located.value, dict):
        raise UserError(f"{path}: must be a mapping with the key gates, and a list of gates under it")
    try:
        return _GateFile.model_validate(located.value).gates
    except ValidationError as error:
        raise explain_fault(error, located, str(path), _list_keys, "the file") from None


def check_gate_rules(rules: Sequence[GateRule], numbers: Mapping[str, Any]) -> list[RunGate]:
    """Return each rule against a run's numbers, in order."""
    return [_check(rule, numbers) for rule in rules]


def _check(rule: GateRule, numbers: Mapping[str, Any]) -> RunGate:
    wanted = {limit: value for limit in LIMITS if (value := getattr(rule, limit)) is not None}
    spelled = " and ".join(f"{LIMITS[limit][0]} {value:g}" for limit, value in wanted.items())
    try:
        found = _number(numbers, *rule.metric.split("."))
        passed = all(LIMITS[limit][1](found, value) for limit, value in wanted.items())
        shown = f"{found:.4g}"
    except _MissingError as error:
        passed, shown = False, f"{MISSING}{error}"
    return RunGate(name=rule.name or rule.metric, passed=passed, detail=f"{rule.metric} {spelled}: {shown}")


def _list_keys(depth: int) -> Iterable[str]:
    return _GateFile.model_fields if depth == 1 else GateRule.model_fields
