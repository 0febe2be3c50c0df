"""A key-value window shared by ragged rows: one column per decode step, holes where a row was waiting.

Every step writes one column for all rows at once; `valid[row, column]` says which of a row's columns
hold its own tokens. Keys carry their rotary positions, so columns may be moved freely.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simulator.engines.embedded.grouped_attention import Block

GROWTH = 64  # columns added at a time
GRAIN = 32  # columns seen by a step: a multiple of it


class _WindowLayer(DynamicLayer):
    """One layer's buffers; `update` writes at the window's column and returns the first `width` columns.

    Both are of the first `num_rows` rows alone: a decode step may leave the last ones out. A block is
    written where it says.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = keys, values
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True
        self.block: Block | None = None
        self.column = self.width = 0
        self.num_rows = keys.shape[0]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        end, rows = self.column + 1, self.num_rows
        if self.block is not None:
            self.keys[self.block.row, :, self.block.column] = key_states[0].transpose(0, 1)
            self.values[self.block.row, :, self.block.column] = value_states[0].transpose(0, 1)
            return self.keys[:rows, :, : self.width], self.values[:rows, :, : self.width]
        self.keys[:rows, :, self.column : end] = key_states
        self.values[:rows, :, self.column : end] = value_states
        return self.keys[:rows, :, : self.width], self.values[:rows, :, : self.width]


class KVWindow:
    """Buffers of all layers for the rows of one policy."""

    spare: ClassVar[float] = 1.0  # unused columns that are kept, as a share of the longest row

    def __init__(self) -> None:
        self.layers: list[_WindowLayer] = []
        self.valid = torch.zeros(0, 0, dtype=torch.bool)  # (rows, capacity)
        self.column = 0  # columns in use

    @property
    def num_rows(self) -> int:
        return self.valid.shape[0]

    def cache(self, num_rows: int) -> Cache:
        """Return the first rows of the window as a Hugging Face cache that writes at the next column."""
        self._reserve(self.column + 1)
        width = self._width()
        for layer in self.layers:
            layer.column, layer.num_rows, layer.width, layer.block = self.column, num_rows, width, None
        return Cache(layers=list(self.layers))

    def step_mask(self, num_rows: int) -> Tensor:
        """Return (num_rows, 1, 1, columns) bool: a row's own columns and the one being written."""
        mask = self.valid[:num_rows, : self._width()].clone()
        mask[:, self.column] = True
        return mask[:, None, None, :]

    def _width(self) -> int:
        """Columns that a step sees: a multiple of GRAIN, those not yet in use among them."""
        return min(self.valid.shape[1], -(-(self.column + 1) // GRAIN) * GRAIN)

    def advance(self, fed: Tensor) -> None:
        """Close the column just written; `fed` (rows,) bool says for whom it was a real token."""
        self.valid[: len(fed), self.column] = fed
        self.column += 1

    def swap_rows(self, one: list[int], other: list[int]) -> None:
        """Row one[i] and row other[i] change places; all are different."""
        to = torch.tensor(one + other, device=self.valid.device)
        source = torch.tensor(other + one, device=self.valid.device)
        for layer in self.layers:
            layer.keys[to, :, : self.column] = layer.keys[source, :, : self.column]
            layer.values[to, :, : self.column] = layer.values[source, :, : self.column]
        self.valid[to] = self.valid[source]

    def append_rows(self, prefilled: Any, valid: Tensor) -> None:
        """Add rows whose prompts were computed apart; `valid` (rows, width) bool, left-padded."""
        width = valid.shape[1]
        if self.num_rows == 0:
            self.column = width
            self.layers = [_WindowLayer(layer.keys, layer.values) for layer in prefilled.layers]
            self.valid = valid
            return
        if width > self.column:
            self._shift_right(width - self.column)
        self._reserve(self.column)
        capacity, offset = self.valid.shape[1], self.column - width
        first = self.num_rows
        for layer, new in zip(self.layers, prefilled.layers, strict=True):
            layer.keys = _with_rows(layer.keys, first, new.keys, offset)
            layer.values = _with_rows(layer.values, first, new.values, offset)
        padded = torch.zeros(valid.shape[0], capacity, dtype=torch.bool, device=self.valid.device)
        padded[:, offset : self.column] = valid
        self.valid = torch.cat([self.valid, padded])

    def keep_rows(self, rows: list[int]) -> None:
        """Drop all other rows and squeeze the holes out, right-aligned."""
        if not rows:
            self.__init__()  # type: ignore[misc]
            return
        index = torch.tensor(rows, device=self.valid.device)
        valid = self.valid[index][:, : self.column]
        lengths = valid.sum(1)
        width = int(lengths.max())
        # stable sort puts a row's invalid columns first and keeps the order of the valid ones
        order = torch.sort(valid.to(torch.int8), dim=1, stable=True).indices[:, valid.shape[1] - width :]
        for layer in self.layers:
            layer.keys = _select(layer.keys, index, order)
            layer.values = _select(layer.values, index, order)
        self.valid = torch.arange(width, device=self.valid.device)[None, :] >= (width - lengths)[:, None]
        self.column = width

    def place(self, counts: Tensor) -> Tensor:
        """Find columns that each of the first rows does not use, for `counts` (rows,) int new tokens of it.

        Columns that others' tokens left free come first, then new ones. Returns: (rows, most) int.
        """
        free = ~self.valid[: len(counts), : self.column]
        missing = int((counts - free.sum(1)).max())
        if missing > 0:
            self._reserve(self.column + missing)
            self.column += missing
            free = ~self.valid[: len(counts), : self.column]
        order = torch.sort(free.to(torch.int8), dim=1, descending=True, stable=True).indices
        return order[:, : int(counts.max())]

    def block_cache(self, num_rows: int, block: Block) -> Cache:
        """Return the first rows of the window as a Hugging Face cache that writes a block's tokens.

        Columns not yet in use are among its own, so that matrix products need no copies.
        """
        for layer in self.layers:
            layer.block, layer.num_rows, layer.width = block, num_rows, self.valid.shape[1]
        return Cache(layers=list(self.layers))

    def block_mask(self, num_rows: int, block: Block) -> Tensor:
        """Return (num_rows, 1, block.width, columns) bool: a row's own columns, and of the block's so far."""
        mask = self.valid[:num_rows, None].repeat(1, block.width, 1)
        slots = torch.arange(block.width, device=mask.device)
        mask[block.row, :, block.column] = slots >= block.slot[:, None]
        return mask[:, None]

    def keep_block(self, block: Block, kept: Tensor) -> None:
        """Close a block; `kept` (rows,) int says how many of its tokens a row keeps."""
        stays = block.slot < kept[block.row]
        self.valid[block.row[stays], block.column[stays]] = True

    def squeeze(self) -> None:
        """Move every row's columns together where many are unused: columns that other rows wrote."""
        if self.column > (1 + self.spare) * self.longest_row() + 32:
            self.keep_rows(list(range(self.num_rows)))

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)

    def longest_row(self) -> int:
        """Most tokens that any row holds."""
        return int(self.valid.sum(1).max()) if self.num_rows else 0

    def _reserve(self, columns: int) -> None:
        missing = columns - self.valid.shape[1]
        if missing > 0:
            self._pad(0, missing + GROWTH)

    def _shift_right(self, columns: int) -> None:
        self._pad(columns, 0)
        self.column += columns

    def _pad(self, left: int, right: int) -> None:
        for layer in self.layers:
            layer.keys = _pad_columns(layer.keys, left, right)
            layer.values = _pad_columns(layer.values, left, right)
        self.valid = torch.nn.functional.pad(self.valid, (left, right))


def _with_rows(buffer: Tensor, first: int, new: Tensor, column: int) -> Tensor:
    """Return the buffer with new rows from row `first` and `column` on, zeros around them.

    A full one grows by half, so growing is rare.
    """
    end = first + new.shape[0]
    if end > buffer.shape[0]:
        spare = buffer.new_empty(max(end, buffer.shape[0] * 3 // 2) - first, *buffer.shape[1:])
        buffer = torch.cat([buffer[:first], spare])
    rows, last = buffer[first:end], column + new.shape[2]
    rows[:, :, :column] = 0
    rows[:, :, column:last] = new
    rows[:, :, last:] = 0
    return buffer


def _select(buffer: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return `columns` (rows, width) of each of these rows, for all heads; whole vectors are copied."""
    _, heads, capacity, width = buffer.shape
    lines = rows[:, None] * heads + torch.arange(heads, device=rows.device)
    index = lines[:, :, None] * capacity + columns[:, None, :]
    return buffer.reshape(-1, width).index_select(0, index.flatten()).view(*index.shape, width)


def _pad_columns(tensor: Tensor, left: int, right: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, 0, left, right))
