"""Marks for parametrized tests: `make test` runs some values, `make test-all` runs all of them."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_except(values: Iterable[Any], *fast: Any) -> list[Any]:
    """Mark every value as slow, except those that `make test` runs.

    Raises:
        ValueError: a fast value is not among the values.
    """
    listed = list(values)
    if unknown := [value for value in fast if value not in listed]:
        raise ValueError(f"{unknown} is not among {listed}")
    return [value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in listed]
