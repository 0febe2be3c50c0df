"""Options of the whole suite."""

import gc
import os
from pathlib import Path

import pytest
import trial_counts

# Before any test imports torch: two workers with several threads each are far slower on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The suite compares numbers of one CPU: a visible GPU would take models that tests hold beside CPU tensors.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# Processes that tests start find the package `reliability` beside this file, and our own wherever they run.
_TESTS = Path(__file__).parent
_PLACES = [str(_TESTS), str(_TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(_PLACES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--counts", choices=("pr", "full"), default="pr", help="numbers of trials of reliability tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    trial_counts.tier = config.getoption("--counts")


def pytest_collection_finish() -> None:
    """Let full garbage collections, of which a trainer makes several, pass over what was imported."""
    gc.freeze()
