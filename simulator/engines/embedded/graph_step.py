"""The decode step that a CUDA graph replays, on a window whose buffers stay where they are."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from simulator.engines.embedded.kv_window import KVWindow, round_columns, round_rows
from simulator.engines.sampling import sample_tokens

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
        self._compute(rows, columns)
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

    def _compute(self, rows: int, columns: int) -> None:
        if not self._records:
            self._step(rows, columns)
            return
        graph = self._graphs.get((rows, columns))
        if graph is None:
            graph = self._record(rows, columns)
        if graph is None:
            self._step(rows, columns)
        else:
            graph.replay()

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
