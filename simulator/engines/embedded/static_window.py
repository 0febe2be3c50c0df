"""A key-value window in buffers that stay where they are: a decode step can be replayed as a CUDA graph.

Rows and columns are added inside the capacity; only what outgrows it moves the buffers (`generation` counts
that). Columns that a row does not use hold finite numbers, which a mask leaves out.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simulator.engines.embedded.kv_window import KVWindow

COLUMNS = 128  # capacity and what a step attends to are multiples of this, from a thousand on of its double
ROW_STEPS = (1, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024)


def round_rows(count: int) -> int:
    """The number of rows that a step is computed for where so many are needed."""
    return next((step for step in ROW_STEPS if step >= count), -(-count // 512) * 512)


def round_columns(count: int) -> int:
    """The number of columns that a step attends to where so many are in use."""
    unit = COLUMNS if count <= 8 * COLUMNS else 2 * COLUMNS
    return -(-count // unit) * unit


class _StaticLayer(DynamicLayer):
    """A step's view of one layer: it writes at a column that a tensor names, and returns all columns."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, column: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values, self.column = keys, values, column
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        # Under autocast a step computes in another precision than the window holds.
        self.keys.index_copy_(2, self.column, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.column, value_states.to(self.values.dtype))
        return self.keys, self.values


class StaticWindow(KVWindow):
    """Buffers of all layers; the first `num_rows` rows and `column` columns are in use."""

    spare: ClassVar[float] = 0.25  # every step attends to all columns, and a GPU's memory is short

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0  # of the buffers: grows when they move
        self._buffers: list[tuple[Tensor, Tensor]] = []  # of each layer keys and values
        self._rows = 0

    @property
    def num_rows(self) -> int:
        return self._rows

    @property
    def num_bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self._buffers)

    def view(self, num_rows: int, num_columns: int, column: Tensor) -> Cache:
        """The corner of the buffers as a Hugging Face cache that writes at `column`, (1,) int."""
        return Cache(
            layers=[
                _StaticLayer(keys[:num_rows, :, :num_columns], values[:num_rows, :, :num_columns], column)
                for keys, values in self._buffers
            ]
        )

    def reserve(self, num_rows: int, columns: int) -> None:
        """Make room, moving the buffers where there is too little."""
        rows, width = self.valid.shape
        if num_rows <= rows and columns <= width:
            return
        more_rows = rows if num_rows <= rows else round_rows(num_rows)
        more_columns = width if columns <= width else round_columns(max(columns, width * 5 // 4))
        pad = (0, more_columns - width, 0, more_rows - rows)
        self.valid = torch.nn.functional.pad(self.valid, pad)
        spread = (0, 0, 0, more_columns - width, 0, 0, 0, more_rows - rows)
        for layer, (keys, values) in enumerate(self._buffers):  # one by one: both sizes are never held whole
            self._buffers[layer] = (
                torch.nn.functional.pad(keys, spread),
                torch.nn.functional.pad(values, spread),
            )
        self.generation += 1

    def append_rows(self, prefilled: Any, valid: Tensor) -> None:
        count, width = valid.shape
        if not self._buffers:
            self.valid = torch.zeros(0, 0, dtype=torch.bool, device=valid.device)
            self._buffers = [(one.keys[:0, :, :0], one.values[:0, :, :0]) for one in prefilled.layers]
        first, end = self._rows, self._rows + count
        self.reserve(end, max(self.column, width) + 1)
        if width > self.column:
            self._move_right(width - self.column)
        place = slice(self.column - width, self.column)
        for (keys, values), new in zip(self._buffers, prefilled.layers, strict=True):
            keys[first:end, :, place] = new.keys
            values[first:end, :, place] = new.values
        self.valid[first:end] = False
        self.valid[first:end, place] = valid
        self._rows = end

    def keep_rows(self, rows: list[int]) -> None:
        count = len(rows)
        if not rows:
            self.valid.fill_(False)
            self._rows = self.column = 0
            return
        index = torch.tensor(rows, device=self.valid.device)
        valid = self.valid[index][:, : self.column]
        lengths = valid.sum(1)
        width = int(lengths.max())
        order = torch.sort(valid.to(torch.int8), dim=1, stable=True).indices[:, -width:]
        for pair in self._buffers:
            for buffer in pair:
                gather = order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[3])
                buffer[:count, :, :width] = buffer[index, :, : self.column].gather(2, gather)
        columns = torch.arange(width, device=self.valid.device)
        self.valid.fill_(False)
        self.valid[:count, :width] = columns[None, :] >= (width - lengths)[:, None]
        self._rows, self.column = count, width

    def swap_rows(self, one: list[int], other: list[int]) -> None:
        to = torch.tensor(one + other, device=self.valid.device)
        source = torch.tensor(other + one, device=self.valid.device)
        for pair in self._buffers:
            for buffer in pair:
                buffer[to, :, : self.column] = buffer[source, :, : self.column]
        self.valid[to] = self.valid[source]

    def longest_row(self) -> int:
        return int(self.valid[: self._rows].sum(1).max()) if self._rows else 0

    def _move_right(self, columns: int) -> None:
        """Shift what is in use, which leaves unused columns on the left."""
        end = self.column + columns
        for pair in self._buffers:
            for buffer in pair:
                buffer[: self._rows, :, columns:end] = buffer[: self._rows, :, : self.column].clone()
        self.valid[:, columns:end] = self.valid[:, : self.column].clone()
        self.valid[:, :columns] = False
        self.column = end
