"""The audit log of the review app: what was written stays, to its last line."""

from pathlib import Path

import pytest

from roles.errors import UserError
from serving.review.room import AuditLog

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def fill(path: Path, count: int = 3) -> AuditLog:
    log = AuditLog(path, key=KEY)
    for number in range(count):
        log.append("ann", "sign_out", f"session {number}", "done")
    return log


def test_entries_are_read_again_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "s.db.audit.jsonl"
    fill(path).close()
    log = fill(path, count=1)
    assert [entry.sequence for entry in log.read()] == [1, 2, 3, 4]
    log.close()


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_lines_that_are_cut_off_are_noticed_at_the_opening(kept: int, tmp_path: Path) -> None:
    """Else a session that was signed out would be open again."""
    path = tmp_path / "s.db.audit.jsonl"
    fill(path).close()
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(UserError, match="lacks line 3: lines were cut off"):
        AuditLog(path, key=KEY)


@pytest.mark.parametrize("change", [("ann", "ben"), ("session 1", "session 9")])
def test_a_line_that_was_changed_is_named(change: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "s.db.audit.jsonl"
    fill(path).close()
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"\.audit\.jsonl:\d is not as it was written with this key"):
        AuditLog(path, key=KEY)


def test_another_key_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db.audit.jsonl"
    fill(path).close()
    with pytest.raises(UserError, match="with this key"):
        AuditLog(path, key=OTHER_KEY)
