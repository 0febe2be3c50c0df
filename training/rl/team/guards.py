"""Guards of joint training: a role whose own score falls, and one that takes most of the gradient.

Own verified scores: the team reward may rise at their expense. The mean of the last `drift_window` steps is
compared with that of the first ones. A fall beyond `drift_alarm` sets a metric, logs one line and turns the
anchor on until the score is back: KL to the role's start, or the loss on demonstrations of its own tasks.
"""

import logging
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from training.config.marl_config import MarlConfig
from training.data.demonstrations import TokenRow
from training.learner.fsdp import compute_device
from training.learner.lora_batch import routed_roles
from training.learner.packing import make_batches
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs

AnchorRows = Callable[[str, int], Sequence[TokenRow]]  # (role, step) -> demonstrations
LARGEST_SHARE = 0.6  # of the gradient, mean of SHARE_WINDOW steps: one role learns and the others hardly
SHARE_WINDOW = 5
logger = logging.getLogger(__name__)


class DriftWatch:
    """Compares the latest own scores of every role with its first ones."""

    def __init__(self, config: MarlConfig) -> None:
        self._alarm, self._window = config.guards.drift_alarm, config.guards.drift_window
        self._first: dict[str, list[float]] = {}  # the first `drift_window` scores
        self._last: dict[str, list[float]] = {}  # the latest ones
        self.fallen: set[str] = set()

    def update(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Take in one step's own scores; metrics `drift/ROLE` (negative: fell) and `drift_alarm/ROLE`."""
        metrics: dict[str, float] = {}
        for role, score in scores.items():
            first, last = self._first.setdefault(role, []), self._last.setdefault(role, [])
            if len(first) < self._window:
                first.append(score)
            last.append(score)
            del last[: -self._window]
            change = statistics.fmean(last) - statistics.fmean(first)
            is_low = self._alarm > 0 and len(last) == self._window and change <= -self._alarm
            if is_low and role not in self.fallen:
                logger.warning(
                    "%s: own verified score fell by %.3f (%.3f to %.3f, means of %d steps)",
                    role,
                    -change,
                    statistics.fmean(first),
                    statistics.fmean(last),
                    self._window,
                )
            (self.fallen.add if is_low else self.fallen.discard)(role)
            metrics |= {f"drift/{role}": change, f"drift_alarm/{role}": float(is_low)}
        return metrics

    def state(self) -> dict[str, Any]:
        """Scores and alarms so far: all that later alarms depend on."""
        return {"first": self._first, "last": self._last, "fallen": sorted(self.fallen)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._first = {role: list(values) for role, values in state["first"].items()}
        self._last = {role: list(values) for role, values in state["last"].items()}
        self.fallen = set(state["fallen"])


class Anchor:
    """Holds a role whose own score fell by an extra loss; a Stateful part of a learner."""

    def __init__(self, config: MarlConfig, rows: AnchorRows | None = None) -> None:
        """`rows`: demonstrations for guard `anchor: sft`; None adds no such loss."""
        self._config, self._rows = config, rows
        self.drift = DriftWatch(config)

    def kl_coefficient(self, role: str) -> float:
        """Return the least weight of KL that the role is held by now."""
        guards = self._config.guards
        return guards.anchor_coefficient if guards.anchor == "kl" and role in self.drift.fallen else 0.0

    def backward(self, model: nn.Module, role: str, step: int, share: float) -> None:
        """Add the gradient of the loss on demonstrations, if the role fell and is held by them."""
        if self._config.guards.anchor == "sft" and role in self.drift.fallen and self._rows is not None:
            backward_anchor(model, self._rows(role, step), role, self._config, share)

    def state(self) -> dict[str, Any]:
        """Own scores and alarms so far."""
        return self.drift.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.drift.load_state(state)


def backward_anchor(
    model: nn.Module, demonstrations: Sequence[TokenRow], role: str, config: MarlConfig, share: float = 1.0
) -> float:
    """Add the gradient of anchor_coefficient times the mean of -log p over own tokens; the loss.

    `share`: of it that this rank adds, where the ranks' gradients of the same rows are summed.
    """
    rows = [
        TrainingRow(
            role=role,
            token_ids=one.token_ids,
            loss_mask=one.loss_mask,
            sampling_logprobs=(0.0,) * len(one.token_ids),
            advantage=1.0,
        )
        for one in demonstrations
    ]
    num_tokens = sum(row.num_own for row in rows)
    device = compute_device(model)
    total = 0.0
    batches = make_batches(
        rows, layout=config.memory.row_layout, max_tokens=config.memory.micro_batch_tokens, device=device
    )
    for batch in batches:
        with routed_roles(model, batch):
            logprobs, _ = token_logprobs(model, batch, logit_rows=config.memory.logit_rows)
            loss = -share * config.guards.anchor_coefficient * logprobs.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def gradient_shares(norms: Mapping[str, float]) -> dict[str, float]:
    """Role -> its share of the sum of squared gradient norms; {} where no norm is finite and above 0."""
    squares = {role: norm * norm for role, norm in norms.items() if math.isfinite(norm)}
    total = sum(squares.values())
    return {role: square / total for role, square in squares.items()} if total > 0 else {}


class GradientShareMonitor:
    """Warns of a role that takes most of the gradient; it decides nothing, so it has no state to keep."""

    def __init__(self) -> None:
        self._latest: deque[dict[str, float]] = deque(maxlen=SHARE_WINDOW)
        self._named: set[str] = set()

    def update(self, norms: Mapping[str, float]) -> dict[str, float]:
        """Take in one step's gradient norms; metrics `gradient_mass/ROLE`."""
        shares = gradient_shares(norms)
        if shares:
            self._latest.append(shares)
        if len(self._latest) == SHARE_WINDOW:
            for role in shares:
                share = statistics.fmean(one.get(role, 0.0) for one in self._latest)
                if share > LARGEST_SHARE and role not in self._named:
                    logger.warning(
                        "%s takes %.0f %% of the gradient (mean of %d steps): other roles hardly learn",
                        role,
                        100 * share,
                        SHARE_WINDOW,
                    )
                (self._named.add if share > LARGEST_SHARE else self._named.discard)(role)
        return {f"gradient_mass/{role}": share for role, share in shares.items()}
