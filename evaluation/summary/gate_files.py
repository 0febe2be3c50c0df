"""Gates from a user's YAML file: thresholds on any number of a run.

    gates:
      - name: the team is good enough
        metric: team.marl.mean
        at_least: 0.7
      - metric: roles.cto.paired.grpo-sft.low
        above: 0

A metric is a path through summary.json; `details.` leads into details.json and `seed_comparison.` into
seed_comparison.json.
A number that is not there fails its gate: nothing passes by being absent.
"""

import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.summary.gates import Gate
from roles.errors import UserError
from scenarios.written.strict_yaml import explain_fault, parse_located_yaml

LIMITS = {"at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt}
SIGNS = {"at_least": ">=", "at_most": "<=", "above": ">", "below": "<"}
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
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read gates {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"gates {path} are not UTF-8 text (byte {error.start})") from None
    located = parse_located_yaml(text, str(path))
    if not isinstance(located.value, dict):
        raise UserError(f"{path}: must be a mapping with the key gates, and a list of gates under it")
    try:
        return _GateFile.model_validate(located.value).gates
    except ValidationError as error:
        raise explain_fault(error, located, str(path), _list_keys, "the file") from None


def check_gate_rules(rules: Sequence[GateRule], numbers: Mapping[str, Any]) -> list[Gate]:
    """Return each rule against a run's numbers, in order."""
    return [_check(rule, numbers) for rule in rules]


def _check(rule: GateRule, numbers: Mapping[str, Any]) -> Gate:
    wanted = {limit: value for limit in LIMITS if (value := getattr(rule, limit)) is not None}
    spelled = " and ".join(f"{SIGNS[limit]} {value:g}" for limit, value in wanted.items())
    name = rule.name or rule.metric
    found = _look_up(numbers, rule.metric)
    if isinstance(found, str):
        return Gate(name=name, passed=False, detail=f"{rule.metric} {spelled}: {found}")
    passed = all(LIMITS[limit](found, value) for limit, value in wanted.items())
    return Gate(name=name, passed=passed, detail=f"{rule.metric} {spelled}: {found:.4g}")


def _look_up(tree: Any, metric: str) -> float | str:
    """Return the number at the path, or why there is none."""
    keys = metric.split(".")
    for depth, key in enumerate(keys):
        if not isinstance(tree, Mapping) or key not in tree:
            there = ".".join(keys[:depth]) or "the run"
            near = difflib.get_close_matches(key, list(tree), n=1) if isinstance(tree, Mapping) else []
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"missing: {there} has no {key!r}{hint}"
        tree = tree[key]
    if isinstance(tree, bool) or not isinstance(tree, int | float) or not math.isfinite(tree):
        return f"missing: {metric} is no number"
    return float(tree)


def _list_keys(depth: int) -> Iterable[str]:
    return _GateFile.model_fields if depth == 1 else GateRule.model_fields
