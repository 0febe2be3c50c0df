"""Alarms of GRPO: what a rising reward can hide. Each compares the latest measurements with the first ones.

mode_collapse    answers stop depending on the case, or sampling loses its variety with nothing gained
kl_runaway       the policy is far from where it started, per token, or goes away ever faster
reward_hacking   the reward rises while an independent scorer of the same answers falls

An alarm needs WINDOW measurements to know the start and WINDOW more to speak; it stands until the run ends.
Those of a stage are kept in RUN/alarms/STAGE.json.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.runs.run_folder import Run

WINDOW = 4  # measurements on each side of a comparison
VARIETY_LEFT = 0.5  # of the first answer variety: less is a collapse
SURPRISE_LEFT = 0.1  # of the first surprise: less is a collapse unless something was gained
LEAST_GAIN = 0.2  # of the way from the first verified reward to 1
KL_LIMIT = 0.5  # nats per token
KL_GROWTH, KL_FLOOR = 3.0, 0.1  # from window to window, twice in a row, above the floor
LEAST_CHANGE = 0.05  # of reward and audit score, beyond which a change is one
ERRORS = 2.0  # standard errors that a change must exceed besides
NAMES = ("mode_collapse", "kl_runaway", "reward_hacking")


class Alarms:
    """Measurements so far and standing alarms; a Stateful part of a checkpoint.

    Example: alarms.take(reward=[0.4, 0.9], surprise=0.2, variety=0.8, verified=0.7, audit=[0.4, 0.8])
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self.standing: dict[str, str] = {}  # name -> what was seen

    def take(
        self,
        *,
        reward: Sequence[float],
        surprise: float,
        variety: float,
        verified: float,
        audit: Sequence[float] = (),
        kl: float | None = None,
    ) -> dict[str, str]:
        """Note one measurement; the alarms that it sets off, each with what was seen.

        reward: total rewards of sampled rollouts; audit: what the independent scorer says of the same ones,
        empty where there is none. surprise: nats per own token. variety: see `answer_variety`. verified: mean
        verified reward of the batch, 0 to 1. kl: nats per token to the starting policy, None where it was not
        measured. NaN counts as infinitely far.
        """
        self._rows.append(
            {
                "reward": list(reward),
                "audit": list(audit),
                "surprise": surprise,
                "variety": variety,
                "verified": verified,
                "kl": math.inf if kl is not None and math.isnan(kl) else kl,
            }
        )
        checks = (self._check_collapse, self._check_kl, self._check_hacking)
        found = {}
        for name, check in zip(NAMES, checks, strict=True):
            seen = check() if name not in self.standing else None
            if seen:
                found[name] = seen
        self.standing |= found
        return found

    def metrics(self) -> dict[str, float]:
        """1 for every alarm that stands, else 0."""
        return {f"alarm/{name}": float(name in self.standing) for name in NAMES}

    def _check_collapse(self) -> str | None:
        if len(self._rows) < 2 * WINDOW:
            return None
        (variety, surprise, verified), (variety_now, surprise_now, verified_now) = (
            tuple(statistics.fmean(_flat(rows, name)) for name in ("variety", "surprise", "verified"))
            for rows in (self._rows[:WINDOW], self._rows[-WINDOW:])
        )
        if variety_now < VARIETY_LEFT * variety:
            return f"different answers to different cases fell from {variety:.2f} to {variety_now:.2f}"
        gained = verified_now - verified >= LEAST_GAIN * (1 - verified)
        if surprise_now < SURPRISE_LEFT * surprise and not gained:
            return (
                f"nats per token fell from {surprise:.3f} to {surprise_now:.3f},"
                f" verified reward went from {verified:.2f} to {verified_now:.2f}"
            )
        return None

    def _check_kl(self) -> str | None:
        values = [row["kl"] for row in self._rows if row["kl"] is not None]
        if len(values) < WINDOW:
            return None
        now = statistics.fmean(values[-WINDOW:])
        if now > KL_LIMIT:
            return f"KL to the starting policy is {now:.2f} nats per token (limit {KL_LIMIT:g})"
        if len(values) < 3 * WINDOW:
            return None
        first, second, third = (
            statistics.fmean(values[len(values) - k * WINDOW : len(values) - (k - 1) * WINDOW])
            for k in (3, 2, 1)
        )
        if third > KL_FLOOR and second > KL_GROWTH * first and third > KL_GROWTH * second:
            return f"KL per token goes {first:.3f}, {second:.3f}, {third:.3f} from window to window"
        return None

    def _check_hacking(self) -> str | None:
        rows = [row for row in self._rows if row["audit"]]
        if len(rows) < 2 * WINDOW:
            return None
        first, now = rows[:WINDOW], rows[-WINDOW:]
        reward, reward_error = _change(_flat(first, "reward"), _flat(now, "reward"))
        audit, audit_error = _change(_flat(first, "audit"), _flat(now, "audit"))
        is_up = reward > max(LEAST_CHANGE, ERRORS * reward_error)
        is_down = audit < -max(LEAST_CHANGE, ERRORS * audit_error)
        if is_up and is_down:
            return (
                f"reward changed by {reward:+.2f}, the independent score of the same answers by {audit:+.2f}"
            )
        return None

    def state(self) -> Mapping[str, Any]:
        return {"rows": list(self._rows), "standing": dict(self.standing)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rows = [dict(row) for row in state["rows"]]
        self.standing = dict(state["standing"])


def _flat(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    values: list[float] = []
    for row in rows:
        value = row[name]
        values += value if isinstance(value, list) else [value]
    return values


def _change(first: Sequence[float], now: Sequence[float]) -> tuple[float, float]:
    """Difference of the means, and its standard error."""
    error = math.sqrt(sum(statistics.variance(v) / len(v) if len(v) > 1 else 0.0 for v in (first, now)))
    return statistics.fmean(now) - statistics.fmean(first), error


def list_alarms(metrics: Mapping[str, float]) -> dict[str, float]:
    """The alarms that went off, by name, for the progress line."""
    return {name: value for name, value in metrics.items() if name.startswith("alarm/") and value}


def write_alarms(run: Run, stage: str, alarms: Mapping[str, str]) -> None:
    """Write a stage's alarms to RUN/alarms/STAGE.json, {} where none went off."""
    run.write_json(f"alarms/{stage}.json", dict(alarms))


def alarms_by_stage(run: Run) -> dict[str, dict[str, str]]:
    """The alarms of every GRPO stage that ended, {} where none went off.

    Example: {"grpo/cto": {"kl_runaway": "KL ... is 0.81 nats"}, "grpo/coo": {}}
    """
    stages = [f"grpo/{owner}" for owner in (*ROLES, SHARED)]
    names = {stage: f"alarms/{stage}.json" for stage in stages}
    return {stage: run.read_json(name) for stage, name in names.items() if (run.path / name).is_file()}


def read_alarms(run: Run) -> list[str]:
    """One line per alarm of the run's GRPO stages, e.g. "grpo/cto kl_runaway: KL ... is 0.81 nats"."""
    found = alarms_by_stage(run)
    return [f"{stage} {alarm}: {seen}" for stage, alarms in found.items() for alarm, seen in alarms.items()]
