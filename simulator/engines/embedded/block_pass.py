"""A pass over several tokens of each of some transcripts: observations, and guesses of what is sampled next.

The tokens of all rows stand end to end, so that no row is padded to the longest; each token's keys go to
a column that its row does not use. Attention unfolds them into rows again (grouped_attention.py).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simulator.engines.embedded.grouped_attention import Block
from simulator.engines.embedded.lanes import Lane, Row
from simulator.engines.embedded.prompt_passes import routed

MOST_GUESSES = 4  # of a row in one pass
MOST_GIVEN = 8  # tokens of a row that go with others' next ones; more take a pass of their own
MOST_PADDED = 4096  # rows x tokens of the longest one in a pass over observations


def bring_observations(lane: Lane) -> int:
    """Let rows that were given much stand first, as many as a pass may hold; their number."""
    waiting = [i for i, row in enumerate(lane.rows) if row.request and len(row.forced) > MOST_GIVEN]
    waiting.sort(key=lambda i: len(lane.rows[i].forced))
    chosen: list[int] = []
    for i in waiting:
        if chosen and (len(chosen) + 1) * len(lane.rows[i].forced) > MOST_PADDED:
            break
        chosen.append(i)
    lane.bring_to_front(chosen)
    return len(chosen)


def run_block(
    lane: Lane,
    rows: Sequence[Row],
    starts: Sequence[int],
    texts: Sequence[Sequence[int]],
    asked: Sequence[int],
) -> tuple[Tensor, Block]:
    """Compute the next tokens of the lane's first rows; all of them get columns, none counts as kept yet.

    `starts`: tokens of each row before these. `asked`: places among all tokens that logits are wanted of.
    Returns: logits (asked, vocabulary), and where the tokens went.
    """
    window, device = lane.window, lane.window.valid.device
    counts = torch.tensor([len(text) for text in texts], device=device)
    owner = torch.arange(len(rows), device=device).repeat_interleave(counts)
    slot = torch.arange(len(owner), device=device) - (counts.cumsum(0) - counts)[owner]
    block = Block(row=owner, slot=slot, column=window.place(counts)[owner, slot], width=int(counts.max()))
    model: Any = lane.model
    with routed(lane, rows, block):
        output = model(
            input_ids=torch.tensor([token for text in texts for token in text], device=device)[None],
            attention_mask=window.block_mask(len(rows), block),
            position_ids=(torch.tensor(starts, device=device)[owner] + slot)[None],
            past_key_values=window.block_cache(len(rows), block),
            use_cache=True,
            logits_to_keep=torch.tensor(asked, device=device),
        )
    return output.logits[0], block
