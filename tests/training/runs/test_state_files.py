"""States on disk: exact round trips, equal bytes for equal states, no code in a file, random states."""

import math
import pickle
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training.runs.checkpoints import DamagedCheckpointError
from training.runs.state_files import capture_random_states, read_state, restore_random_states, write_state


def round_trip(folder: Path, value: Any) -> Any:
    write_state(folder, "x", value)
    return read_state(folder, "x")


def test_plain_values_keep_their_types(tmp_path: Path) -> None:
    value = {
        "none": None,
        "flags": [True, False, 1, 0],
        "small": 5e-324,
        "third": 1 / 3,
        "tuple": (1, (2, "x")),
        "numbers": {0: "a", 1: {"step": 3}},
        "empty": {},
        "$odd": 1,
    }
    assert round_trip(tmp_path, value) == value
    assert [type(x) for x in round_trip(tmp_path, value)["flags"]] == [bool, bool, int, int]


def test_values_that_json_does_not_know(tmp_path: Path) -> None:
    back = round_trip(tmp_path, [math.nan, math.inf, -math.inf, deque([1, 2])])
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf, [1, 2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = (torch.randn(3, 5) * 100).to(dtype)
    back = round_trip(tmp_path, {"state": {0: {"m": tensor, "view": tensor.T}}, "step": torch.tensor(7.0)})
    assert torch.equal(back["state"][0]["m"], tensor)
    assert back["state"][0]["m"].dtype == dtype
    assert torch.equal(back["state"][0]["view"], tensor.T)
    assert back["step"].shape == ()


def test_an_optimizer_goes_on_exactly(tmp_path: Path) -> None:
    def train(steps: int, state: Any = None, start: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
        weight = torch.nn.Parameter(torch.ones(4) if start is None else start.clone())
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        if state is not None:
            optimizer.load_state_dict(state)
        for _ in range(steps):
            optimizer.zero_grad()
            (weight**3).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return weight.detach(), optimizer.state_dict()

    whole, _ = train(5)
    half, state = train(2)
    resumed, _ = train(3, round_trip(tmp_path, state), half)
    restarted, _ = train(3, None, half)
    assert torch.equal(whole, resumed)
    assert not torch.equal(whole, restarted)


def test_equal_states_are_equal_bytes(tmp_path: Path) -> None:
    one, other = torch.zeros(2), torch.ones(2)
    (tmp_path / "b").mkdir()
    write_state(tmp_path, "x", {0: one, 1: other, "k": {"a": 1, "b": other}})
    write_state(tmp_path / "b", "x", {"k": {"b": other, "a": 1}, 1: other, 0: one})
    for suffix in ("json", "safetensors"):
        assert (tmp_path / f"x.{suffix}").read_bytes() == (tmp_path / "b" / f"x.{suffix}").read_bytes()


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold object"):
        write_state(tmp_path, "x", {"a": [object()]})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        pickle.dumps({"a": 1}),
        b'{"$tensor": "0"}',
        b'{"$call": ["os.system", "true"]}',
        b'{"$float": "1e9"}',
        b"[" * 100_000,
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match="cannot be read"):
        read_state(tmp_path, "x")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_random_generators_go_on(tmp_path: Path) -> None:
    np.random.randn()
    states = round_trip(tmp_path, capture_random_states())
    expected = [draw() for _ in range(3)]
    restore_random_states(states)
    assert [draw() for _ in range(3)] == expected
