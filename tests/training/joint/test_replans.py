"""Demonstrations of re-plans: whole transcripts of experts whose plan was overtaken."""

import pytest
from tiny_models import tiny_chat

from roles.team import RECONCILER
from scenarios.base import Style
from training.data.demonstrations import TokenRow, team_scenario
from training.joint.replans import play_experts, replan_rows

NUM_ROWS = 3
STYLE: Style = "short"


def rows_of(role: str, first_row: int = 0) -> list[TokenRow]:
    return replan_rows(
        role, tiny_chat(), num_rows=NUM_ROWS, first_row=first_row, seed=0, difficulties=(1, 2), style=STYLE
    )


def split_messages(row: TokenRow) -> tuple[list[str], list[str]]:
    """The texts that were read and those that were written, in order."""
    read, written, piece, before = list[str](), list[str](), list[int](), 0
    for token, bit in [*zip(row.token_ids, row.loss_mask, strict=True), (0, -1)]:
        if piece and bit != before:
            (written if before else read).append(tiny_chat().decode(tuple(piece)))
            piece = []
        piece, before = [*piece, token], bit
    return read, written


def test_reconcile_is_shown_its_second_draft() -> None:
    for row in rows_of(RECONCILER):
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
def test_later_rows_are_of_other_cases_and_the_same_rows_come_again() -> None:
    first, again, later = rows_of("cto"), rows_of("cto"), rows_of("cto", first_row=NUM_ROWS)
    assert first == again
    assert not set(first) & set(later)


def test_experts_write_offers_that_stand() -> None:
    cases = [team_scenario("train", 0, index, (1, 2)) for index in range(4)]
    for record in play_experts(cases, tiny_chat(), STYLE):
        assert record.status in ("completed", "completed_with_alerts", "handed_over")
        for chapter in record.chapters:
            assert all('"offers": [' in text for text in chapter.reports.values())
