"""The reward model of a role: the role's own network with one score in place of the output head.

It reads a whole transcript and scores it at its last token. It is as good as the comparisons that it was
trained on: its accuracy on comparisons kept out of training is stored with it.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from roles.errors import UserError
from training.feedback.rows import PreferenceRow
from training.models.base_model import find_device
from training.models.weights import find_weights, load_weights
from training.runs.run_folder import Run

STAGE = "reward"
ROWS_PER_PASS = 64
LEAST_SPREAD = 1e-6  # under it a model says the same of all answers


def build_reward_model(run: Run, source: str, role: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model that scores transcripts, with the role's weights of a stage below a new head of zeros.

    Raises:
        UserError: the stage has no weights of the role, or they are an adapter.
    """
    if run.config.model.adapter != "none":
        raise UserError(
            f"model.adapter {run.config.model.adapter!r}: reward models are trained on whole weights so far;"
            " use dpo, or a run with model.adapter=none"
        )
    _, tokenizer = load_weights(run, source, role)
    model = _load(find_weights(run, source, role), tokenizer)
    torch.nn.init.zeros_(cast(Any, model).score.weight)
    return model, tokenizer


def load_reward_model(run: Run, role: str) -> "RewardModel":
    """The role's trained reward model.

    Raises:
        UserError: there is none; says which command makes it.
    """
    try:
        folder = find_weights(run, STAGE, role)
    except UserError:
        raise UserError(
            f"role {role!r} has no reward model in {run.path};"
            f" make one with `emads train reward {run.path} --role {role} --labels FILE`"
        ) from None
    return RewardModel(_load(folder, None))


def _load(folder: Any, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedModel:
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
    )
    if tokenizer is not None:
        model.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    return cast(PreTrainedModel, model.to(find_device()))


@dataclass(frozen=True, slots=True)
class RewardModel:
    """Scores transcripts. Example: RewardModel(model).score([(3, 8, 41, 1)]) == [0.7]"""

    model: PreTrainedModel

    @torch.no_grad()
    def score(self, transcripts: Sequence[Sequence[int]]) -> list[float]:
        """One score per transcript of token ids, any finite number; higher is better."""
        adapted: Any = self.model
        adapted.eval()
        pad = int(adapted.config.pad_token_id)
        found: list[float] = []
        for start in range(0, len(transcripts), ROWS_PER_PASS):
            rows = [torch.tensor(list(ids)) for ids in transcripts[start : start + ROWS_PER_PASS]]
            ids = pad_sequence(rows, batch_first=True, padding_value=pad).to(adapted.device)
            attention = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
            output = adapted(input_ids=ids, attention_mask=attention.to(adapted.device), use_cache=False)
            found += output.logits[:, 0].float().tolist()
        return found

    def set_spread(self, rows: Sequence[PreferenceRow]) -> None:
        """Scale the head so that scores of these answers have standard deviation 1.

        So a weight of the score in a reward means the same for every model, however long it was trained.
        """
        scores = self.score([one.token_ids for row in rows for one in (row.chosen, row.rejected)])
        spread = statistics.pstdev(scores)
        if spread > LEAST_SPREAD:
            cast(Any, self.model).score.weight.data.div_(spread)

    def accuracy(self, rows: Sequence[PreferenceRow]) -> float | None:
        """Share of the pairs whose better answer scores higher, half for a tie; None without pairs."""
        if not rows:
            return None
        better = self.score([row.chosen.token_ids for row in rows])
        worse = self.score([row.rejected.token_ids for row in rows])
        right = [(one > other) + 0.5 * (one == other) for one, other in zip(better, worse, strict=True)]
        return sum(right) / len(right)
