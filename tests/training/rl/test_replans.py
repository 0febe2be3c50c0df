"""Demonstrations of re-plans: whole transcripts of experts whose plan was overtaken."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_chat

from roles.team import RECONCILER
from scenarios.base import Style
from simulator.governance.record import GovernedRecord
from training.config.run_config import DataConfig, RunConfig
from training.data.demonstrations import TokenRow, team_scenario
from training.rl.team import replans
from training.rl.team.replans import play_experts, replan_rows

NUM_ROWS = 3
STYLE: Style = "short"
CONFIG = RunConfig()  # short prompts, difficulties 1 and 2, seed 0


def rows_of(folder: Path, role: str, first_row: int = 0) -> list[TokenRow]:
    return replan_rows(CONFIG, role, tiny_chat(), folder, num_rows=NUM_ROWS, first_row=first_row)


def split_messages(row: TokenRow) -> tuple[list[str], list[str]]:
    """The texts that were read and those that were written, in order."""
    read, written, piece, before = list[str](), list[str](), list[int](), 0
    for token, bit in [*zip(row.token_ids, row.loss_mask, strict=True), (0, -1)]:
        if piece and bit != before:
            (written if before else read).append(tiny_chat().decode(tuple(piece)))
            piece = []
        piece, before = [*piece, token], bit
    return read, written


def test_reconcile_is_shown_its_second_draft(tmp_path: Path) -> None:
    for row in rows_of(tmp_path, RECONCILER):
        read, written = split_messages(row)
        assert len(read) == len(written) >= 2
        assert "Plan again." not in read[0]
        assert all("Plan again." in text for text in read[1:])
        assert all('"fund": [' in text for text in written)
        labels = [text.partition('"fund": [')[2].partition("]")[0] for text in written]
        funded = [one.replace('"', "").split(", ") for one in labels]
        seats = ["cto", "coo", "risk", "cost"]
        assert all(one == [""] or one == [seat for seat in seats if seat in one] for one in funded)


@pytest.mark.slow
def test_later_rows_are_of_other_cases_and_the_same_rows_come_again(tmp_path: Path) -> None:
    first, again = rows_of(tmp_path / "a", "cto"), rows_of(tmp_path / "b", "cto")
    later = rows_of(tmp_path / "a", "cto", first_row=NUM_ROWS)
    assert first == again
    assert not set(first) & set(later)


def test_episodes_are_played_once_for_all_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def count(*of_block: Any) -> list[GovernedRecord]:
        played.append(play_experts(*of_block))
        return played[-1]

    monkeypatch.setattr(replans, "play_experts", count)
    rows = {role: rows_of(tmp_path, role) for role in (RECONCILER, "cto")}
    blocks = len(played)
    again = [
        record for block in played for record in block if any(c.attempt and c.drafts for c in record.chapters)
    ]
    for role, of_role in rows.items():
        wanted = [record.episode.trajectories[role] for record in again[:NUM_ROWS]]
        assert [row.token_ids for row in of_role] == [tuple(one.token_ids) for one in wanted]
        assert [row.loss_mask for row in of_role] == [tuple(one.loss_mask) for one in wanted]
    assert rows_of(tmp_path, "risk")
    assert len(played) == blocks  # the first role played for all


def test_experts_write_offers_that_stand() -> None:
    cases = [team_scenario(DataConfig(), "train", index, (1, 2)) for index in range(4)]
    for record in play_experts(cases, tiny_chat(), STYLE):
        assert record.status in ("completed", "completed_with_alerts", "handed_over")
        for chapter in record.chapters:
            assert all('"offers": [' in text for text in chapter.reports.values())
