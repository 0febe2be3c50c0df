"""Options of the whole suite."""

import pytest
import trial_counts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--counts", choices=("pr", "full"), default="pr", help="numbers of trials of reliability tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    trial_counts.tier = config.getoption("--counts")
