"""Two limits that the requests to one endpoint share: their rate and their cost."""

import asyncio


class BudgetSpentError(Exception):
    """The next request could exceed the cost limit: a clean stop, no failure."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.cost = 0.0  # of the failed attempts before


class RateLimit:
    """At most `per_minute` requests a minute (None: any), evenly spread; all wait when the server asks."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap_s = 60 / per_minute if per_minute else 0.0
        self._next_s = 0.0  # on the event loop's clock
        self._queue = asyncio.Lock()

    async def wait_turn(self) -> None:
        """Return when the next request may leave, in the order of the calls."""
        clock = asyncio.get_running_loop().time
        async with self._queue:
            while (left_s := self._next_s - clock()) > 0:
                await asyncio.sleep(left_s)
            self._next_s = clock() + self._gap_s

    def hold_off(self, wait_s: float) -> None:
        """No request leaves within the next `wait_s` seconds."""
        self._next_s = max(self._next_s, asyncio.get_running_loop().time() + wait_s)


class Budget:
    """Counts cost and keeps it at or under a limit, requests under way included.

    A request reserves the most that it can cost before it leaves, so that the limit holds whatever the order
    of the replies, as long as the endpoint keeps to the requested number of tokens.

    Several endpoints may share one.

    Example: Budget(max_cost=5.0, spent=1.2)
    """

    def __init__(self, *, max_cost: float | None = None, spent: float = 0.0) -> None:
        self._max_cost = max_cost  # None: no limit
        self._reserved = 0.0
        self._num_open = 0  # requests under way
        self._is_closed = False
        self._settled = asyncio.Event()  # replaced each time it is set
        self.spent = spent

    async def reserve(self, bound: float) -> None:
        """Set `bound` aside; waits while requests under way could still leave room for it.

        Raises:
            BudgetSpentError: no room, now and for every later request.
        """
        if self._max_cost is not None:
            while not self._is_closed and self.spent + self._reserved + bound > self._max_cost:
                self._is_closed = self._num_open == 0
                if not self._is_closed:
                    await self._settled.wait()
            if self._is_closed:
                raise BudgetSpentError(f"cost limit {self._max_cost:g} reached, {self.spent:.4f} spent")
        self._reserved += bound
        self._num_open += 1

    def settle(self, bound: float, cost: float) -> None:
        """Book `cost` in place of the `bound` that was reserved."""
        self.spent += cost
        self._num_open -= 1
        self._reserved = self._reserved - bound if self._num_open else 0.0
        self._settled.set()
        self._settled = asyncio.Event()
