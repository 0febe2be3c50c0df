"""Time limits of tests."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fail_after(seconds: int) -> Iterator[None]:
    """While this is open for longer, the test fails instead of hanging."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"the test took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
