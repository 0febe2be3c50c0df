"""Verbs that must fail, as a user runs them."""

import pytest

from emads.cli import main


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a verb that must fail, and return its one line."""
    status = main([str(argument) for argument in arguments])
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("error: ")]
    assert status == 2
    assert len(lines) == 1
    assert "Traceback" not in error
    assert error.splitlines()[-1] == lines[0]
    return lines[0]
