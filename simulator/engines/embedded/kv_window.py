"""A key-value window shared by ragged rows, and the decode step on it that a CUDA graph replays.

Every step writes one column for all rows at once; `valid[row, column]` says which of a row's columns hold its
own tokens. Keys carry their rotary positions, so columns may be moved freely. Columns that a row does not use
hold finite numbers, which a mask leaves out. Only what outgrows the buffers moves them.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simulator.engines.sampling import sample_tokens

GRAIN = 32  # columns seen by a step: a multiple of it, up to a limit
GROWTH = 64  # of that limit
COLUMNS = 128  # grain where steps are recorded; from a thousand columns on its double
ROW_STEPS = (1, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024)


def round_rows(count: int) -> int:
    """Round a number of rows up to one of those for which steps are recorded."""
    return next((step for step in ROW_STEPS if step >= count), -(-count // 512) * 512)


def round_columns(count: int) -> int:
    """Round a number of columns up to one of those for which steps are recorded."""
    unit = COLUMNS if count <= 8 * COLUMNS else 2 * COLUMNS
    return -(-count // unit) * unit


class _WindowLayer(DynamicLayer):
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


class KVWindow:
    """Buffers of all layers; the first `num_rows` rows and `column` columns are in use."""

    def __init__(self, *, is_fixed: bool = False) -> None:
        """`is_fixed`: for recorded steps, which attend to every column: few spare ones are kept."""
        self.is_fixed = is_fixed
        self.spare = 0.25 if is_fixed else 1.0  # unused columns that are kept, as a share of the longest row
        self.valid = torch.zeros(0, 0, dtype=torch.bool)  # (row capacity, column capacity)
        self.num_rows = self.column = 0
        self._limit = 0  # columns that a step sees at most
        self.generation = 0  # of the buffers: grows when they move
        self._buffers: list[tuple[Tensor, Tensor]] = []  # of each layer keys and values

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._buffers)

    def count_seen(self) -> int:
        """Return the columns that the next step sees, its own among them."""
        needed = self.column + 1
        if needed > self._limit:
            self._limit = needed + GROWTH
        return min(self._limit, -(-needed // GRAIN) * GRAIN)

    def view(self, num_rows: int, num_columns: int, column: Tensor) -> Cache:
        """Return the corner of the buffers as a Hugging Face cache that writes at `column`, (1,) int."""
        return Cache(
            layers=[
                _WindowLayer(keys[:num_rows, :, :num_columns], values[:num_rows, :, :num_columns], column)
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
        """Add rows whose prompts were computed apart; `valid` (rows, width) bool, left-padded."""
        count, width = valid.shape
        if not self._buffers:
            self.valid = torch.zeros(0, 0, dtype=torch.bool, device=valid.device)
            self._buffers = [(one.keys[:0, :, :0], one.values[:0, :, :0]) for one in prefilled.layers]
        first, end = self.num_rows, self.num_rows + count
        self.reserve(end, max(self.column, width) + 1)
        if width > self.column:
            self._limit += width - self.column
            self._move_right(width - self.column)
        place = slice(self.column - width, self.column)
        for pair, new in zip(self._buffers, prefilled.layers, strict=True):
            for buffer, added in zip(pair, (new.keys, new.values), strict=True):
                buffer[first:end] = 0  # a row that stood here may have held numbers that are not finite
                buffer[first:end, :, place] = added
        self.valid[first:end] = False
        self.valid[first:end, place] = valid
        self.num_rows = end

    def keep_rows(self, rows: list[int]) -> None:
        """Drop all other rows and squeeze the holes out, right-aligned."""
        count = len(rows)
        if not rows:
            self.valid.fill_(False)
            if not self.is_fixed:
                self._buffers = []
            self.num_rows = self.column = self._limit = 0
            return
        index = torch.tensor(rows, device=self.valid.device)
        valid = self.valid[index][:, : self.column]
        lengths = valid.sum(1)
        width = int(lengths.max())
        # stable sort puts a row's invalid columns first and keeps the order of the valid ones
        order = torch.sort(valid.to(torch.int8), dim=1, stable=True).indices[:, self.column - width :]
        for pair in self._buffers:
            for buffer in pair:
                buffer[:count, :, :width] = _select(buffer, index, order)
                buffer[:count, :, width : self.column] = 0
        columns = torch.arange(width, device=self.valid.device)
        self.valid.fill_(False)
        self.valid[:count, :width] = columns[None, :] >= (width - lengths)[:, None]
        self.num_rows, self.column, self._limit = count, width, width

    def swap_rows(self, one: list[int], other: list[int]) -> None:
        """Row one[i] and row other[i] change places; all are different."""
        to = torch.tensor(one + other, device=self.valid.device)
        source = torch.tensor(other + one, device=self.valid.device)
        for pair in self._buffers:
            for buffer in pair:
                buffer[to, :, : self.column] = buffer[source, :, : self.column]
        self.valid[to] = self.valid[source]

    def squeeze(self) -> None:
        """Move every row's columns together where many are unused: columns that other rows wrote."""
        if self.column > (1 + self.spare) * self.longest_row() + 32:
            self.keep_rows(list(range(self.num_rows)))

    def longest_row(self) -> int:
        """Return the most tokens that any row holds."""
        return int(self.valid[: self.num_rows].sum(1).max()) if self.num_rows else 0

    def _move_right(self, columns: int) -> None:
        """Shift what is in use, which leaves unused columns on the left."""
        end = self.column + columns
        for pair in self._buffers:
            for buffer in pair:
                buffer[: self.num_rows, :, columns:end] = buffer[: self.num_rows, :, : self.column].clone()
        self.valid[:, columns:end] = self.valid[:, : self.column].clone()
        self.valid[:, :columns] = False
        self.column = end


def _select(buffer: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return `columns` (rows, width) of each of these rows, for all heads; whole vectors are copied."""
    _, heads, capacity, width = buffer.shape
    lines = rows[:, None] * heads + torch.arange(heads, device=rows.device)
    index = lines[:, :, None] * capacity + columns[:, None, :]
    return buffer.view(-1, width).index_select(0, index.flatten()).view(*index.shape, width)


logger = logging.getLogger(__name__)
Route = Callable[[Tensor], AbstractContextManager[None]]
WARM_UPS = 2  # passes before a recording: libraries choose their kernels there


class GraphStep:
    """The steps of one model on one window; without a CUDA device they are computed as they are.

    A decode step of a small model is a thousand short kernels, which Python hands over one by one: seen on an
    H100, 0.5B weights with five adapters took 120 ms a step for 5 ms of work. As a graph they start at once.
    It is good for one number of rows and columns (both rounded up) while the window's buffers stay.
    """

    def __init__(self, model: Any, window: KVWindow, route: Route) -> None:
        """`route`: opens the way through the adapters by their places, (rows,) int."""
        self.model, self.window, self._route = model, window, route
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._generation = -1
        self._pool: Any = None  # memory that the graphs share
        self._records = window.valid.is_cuda

    def run(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        fed: Sequence[bool],
        places: Sequence[int],
        streams: Sequence[int],
        lengths: Sequence[int],
        temperatures: Sequence[float],
    ) -> tuple[list[int], list[float]]:
        """Feed one token to each of the first rows; of each the next token and its log-probability."""
        window, count = self.window, len(tokens)
        rows, columns = round_rows(count), round_columns(window.column + 1)
        window.reserve(rows, columns)
        if self._generation != window.generation:
            self._move_in()
        filled = torch.zeros(6, rows, dtype=torch.int64)
        on = [int(one) for one in fed]
        filled[:, :count] = torch.tensor([tokens, positions, on, places, streams, lengths])
        self._numbers[:, :rows].copy_(filled)
        self._column.fill_(window.column)
        self._temperatures[:count].copy_(torch.tensor(temperatures))
        graph = self._graphs.get((rows, columns))
        if graph is None and self._records:
            graph = self._record(rows, columns)
        if graph is None:
            self._step(rows, columns)
        else:
            graph.replay()
        window.column += 1
        found = self._found[:, :count].tolist()
        return [int(token) for token in found[0]], found[1]

    def _move_in(self) -> None:
        """Take buffers as wide as the window's; what was recorded for the old ones is dropped."""
        rows, device = self.window.valid.shape[0], self.window.valid.device
        self._graphs.clear()
        self._pool = None  # one goes with the last graph in it
        self._numbers = torch.zeros(6, rows, dtype=torch.int64, device=device)
        self._column = torch.zeros(1, dtype=torch.int64, device=device)
        self._temperatures = torch.ones(rows, device=device)
        self._found = torch.zeros(2, rows, dtype=torch.float64, device=device)  # exact for ids, too
        self._generation = self.window.generation

    def _record(self, rows: int, columns: int) -> torch.cuda.CUDAGraph | None:
        """Record the step; None, for good, where the model does what cannot be recorded."""
        for _ in range(WARM_UPS):  # a step may be computed again: it writes the same numbers
            self._step(rows, columns)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._step(rows, columns)
        except RuntimeError as error:
            logger.warning("decode steps are not recorded: %s", str(error).splitlines()[0])
            self._records = False
            torch.cuda.synchronize()
            return None
        self._graphs[rows, columns] = graph
        return graph

    def _step(self, rows: int, columns: int) -> None:
        """Read the inputs' buffers, write the window and the results; nothing here asks the device."""
        tokens, positions, fed, places, streams, lengths = self._numbers[:, :rows]
        valid = self.window.valid[:rows]
        mask = valid[:, :columns].index_fill(1, self._column, True)
        with self._route(places[:, None]):
            output = self.model(
                input_ids=tokens[:, None],
                attention_mask=mask[:, None, None, :],
                position_ids=positions[:, None],
                past_key_values=self.window.view(rows, columns, self._column),
                use_cache=True,
            )
        valid.index_copy_(1, self._column, fed.bool()[:, None])
        logits, temperatures = output.logits[:, -1], self._temperatures[:rows]
        drawn, logprobs = sample_tokens(logits, temperatures, streams, lengths, is_recorded=True)
        self._found[0, :rows] = drawn
        self._found[1, :rows] = logprobs
