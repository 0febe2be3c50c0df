"""Rows of labels: sampled ids as they are, loss on what a stage learns; what simulated reviewers say."""

from typing import Any

import pytest
from played_labels import ROLE, draw_labels, play, write
from tiny_models import small_model, tiny_chat

from roles.errors import UserError
from roles.registry import ROLES
from scenarios.registry import families
from training.data.demonstrations import TokenRow, demonstration_row
from training.feedback.labels import LABEL, Comparison, Correction, Message, VerdictLabel, replace_last
from training.feedback.reviewers import LabelReviewer, claimed_worth
from training.feedback.rows import (
    PreferenceRow,
    correction_rows,
    encode_answer,
    preference_rows,
    split_rows,
)


@pytest.fixture(scope="module")
def model() -> Any:
    return small_model(scale=0.5)


def test_rows_of_sampled_answers_are_exactly_the_sampled_ids(model: Any) -> None:
    chat = tiny_chat()
    plays = play(model, chat, 6)
    labels = [write("verdict", [one], chat) for one in plays]
    read = [LABEL.validate_json(one.model_dump_json()) for one in labels if one]
    verdicts = [label for label in read if isinstance(label, VerdictLabel)]
    rows = [encode_answer(label, label.answer, chat, written_only=False) for label in verdicts]
    assert len({len(one.trajectory.turns) for one in plays}) >= 1
    for one, row in zip(plays, rows, strict=True):
        assert row.token_ids == one.trajectory.token_ids
        assert row.loss_mask == one.trajectory.loss_mask


def test_tool_output_is_in_the_row_and_not_in_the_loss(model: Any) -> None:
    """The expert's play as a correction gives the demonstration's row: ids, calls, observations and mask."""
    chat, family = tiny_chat(), families("short")[ROLE]
    (one,) = play(model, chat, 1)
    label = write("correction", [one], chat)
    assert isinstance(label, Correction)
    assert any(message.role == "tool" for message in label.corrected)
    (row,) = correction_rows([label], chat)
    expected = demonstration_row(family, one.scenario, chat)
    assert row == expected
    assert 0 in row.loss_mask[row.loss_mask.index(1) :]  # the tool's words stand among the role's


def test_a_correction_trains_what_the_reviewer_wrote_alone(model: Any) -> None:
    chat = tiny_chat()
    (one,) = play(model, chat, 1)
    label = write("correction", [one], chat)
    assert isinstance(label, Correction)
    kept = (Message(role="assistant", content="B", token_ids=(*chat.encode("B"), chat.end_id)),)
    both = label.model_copy(
        update={"corrected": (*kept, Message(role="tool", content="C"), *replace_last(kept, "A"))}
    )
    (row,) = correction_rows([both], chat)
    own = [token for token, bit in zip(row.token_ids, row.loss_mask, strict=True) if bit]
    assert own == [*chat.encode("A"), chat.end_id]


def test_approved_answers_that_nobody_corrected_are_shown_beside_corrections(model: Any) -> None:
    chat = tiny_chat()
    first, second, third = play(model, chat, 3)
    correction = write("correction", [first], chat)
    verdicts = [write("verdict", [one], chat, "hostile") for one in (first, second)]  # approve what is wrong
    rejected = write("verdict", [third], chat)
    labels = [one for one in (correction, *verdicts, rejected) if one is not None]
    assert [one.ruling for one in labels[1:]] == ["approved", "approved", "rejected"]
    corrected, approved = correction_rows(labels, chat, with_approved=True)
    assert [corrected] == correction_rows(labels, chat)
    assert approved.token_ids == second.trajectory.token_ids
    assert approved.loss_mask == second.trajectory.loss_mask


def test_who_corrects_approves_what_is_right(model: Any) -> None:
    chat = tiny_chat()
    (one,) = play(model, chat, 1)
    label = write("correction", [one], chat, "noisy:1")  # finds right what is wrong
    assert isinstance(label, VerdictLabel)
    assert label.approved


def test_ids_of_another_tokenizer_are_not_believed(model: Any) -> None:
    chat = tiny_chat()
    (one,) = play(model, chat, 1)
    label = write("verdict", [one], chat)
    assert label is not None
    foreign = (Message(role="assistant", content="A", token_ids=(1, 1, 1)),)
    row = encode_answer(label, foreign, chat, written_only=False)
    assert row.token_ids[row.loss_mask.index(1) :] == (*chat.encode("A"), chat.end_id)


def test_the_preferred_answer_is_the_chosen_row(model: Any) -> None:
    chat = tiny_chat()
    label = next(one for one in draw_labels(model, chat, 3) if isinstance(one, Comparison))
    swapped = label.model_copy(update={"preferred": "second" if label.preferred == "first" else "first"})
    neither = label.model_copy(update={"preferred": "neither"})
    (one,), (other,) = preference_rows([label], chat), preference_rows([swapped], chat)
    assert (one.chosen, one.rejected) == (other.rejected, other.chosen)
    better = label.first if label.preferred == "first" else label.second
    assert one.chosen == encode_answer(label, better, chat, written_only=False)
    assert preference_rows([neither], chat) == []


def test_no_prompt_is_on_both_sides_of_the_split() -> None:
    def pair(prompt: int, answer: int) -> PreferenceRow:
        row = TokenRow(token_ids=(prompt, answer), loss_mask=(0, 1))
        return PreferenceRow(chosen=row, rejected=row)

    rows = [pair(prompt, answer) for prompt in range(20) for answer in (1, 2)]
    training, held_out = split_rows(rows, 0.25, seed=0)
    assert (len(training), len(held_out)) == (30, 10)
    assert not {r.chosen.token_ids[0] for r in training} & {r.chosen.token_ids[0] for r in held_out}
    assert split_rows(rows, 0.0, seed=0) == (rows, [])


def test_a_hostile_reviewer_says_the_opposite_and_a_noisy_one_does_so_at_its_rate(model: Any) -> None:
    chat = tiny_chat()
    (one,) = play(model, chat, 1)
    said = {name: write("verdict", [one], chat, name) for name in ("exact", "hostile")}
    assert isinstance(said["exact"], VerdictLabel)
    assert isinstance(said["hostile"], VerdictLabel)
    assert said["exact"].approved != said["hostile"].approved
    noisy = LabelReviewer.parse("noisy:0.3")
    wrong = [noisy.is_wrong(f"cto/train/0/{index}/1") for index in range(2000)]
    assert 0.27 < sum(wrong) / 2000 < 0.33
    assert wrong == [noisy.is_wrong(f"cto/train/0/{index}/1") for index in range(2000)]


def test_a_biased_reviewer_follows_the_claim() -> None:
    assert claimed_worth('{"part": ["G"], "cost": 8, "worth": 10}') == 10
    assert claimed_worth('{"offers": [{"cost": 3}, {"cost": 7}]}') == 7
    assert claimed_worth("no JSON") == 0


@pytest.mark.parametrize("text", ["kind", "noisy", "noisy:2", "noisy:x", "exact:0.1"])
def test_an_unknown_reviewer_is_a_user_mistake(text: str) -> None:
    with pytest.raises(UserError, match="reviewer"):
        LabelReviewer.parse(text)


def test_every_role_has_the_greedy_answer_that_noisy_corrections_need() -> None:
    assert all("greedy" in families("short")[role].baselines for role in ROLES)
