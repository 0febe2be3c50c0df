"""What training of roles took from a chat model: plain instructions and reasoning-gym, before and after.

    pip install 'emads[suites]'
    python -m benchmarks.roles.forgetting RUN --stage marl --role cto --role cost

Twenty plain instructions, whose replies a function checks, are answered greedily and four times at
temperature 1; reasoning-gym's questions greedily, where a reply counts if one of its lines, or its last word,
is the answer. Besides: by how many nats per token the trained weights rate the base's own greedy replies
higher, which tells of changes too small for the checks. Every change is paired, with its 95 % interval.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.roles.plain_instructions import INSTRUCTIONS
from evaluation.scoring.external_tasks import REASONING_GYM, read_suite
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from roles.errors import UserError
from roles.registry import ROLES
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights
from training.runs.run_folder import Run

BASE = "base"
MAX_TOKENS, NUM_SAMPLES, BATCH = 64, 4, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model replied to one message.

    Example: Reply(prompt=[1, 88], ids=[5, 2], text="Paris")
    """

    prompt: list[int]  # token ids
    ids: list[int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What weights answered: 1 for right, 0 for wrong, in the order of the questions."""

    greedy: list[Reply]  # to the instructions
    right: list[float]
    right_sampled: list[float]  # mean over the samples of each instruction
    reasoned: list[float]  # reasoning-gym; may be empty


def main(arguments: Sequence[str]) -> int:
    """Print one table row per role, the base's own first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", default="marl")
    parser.add_argument("--role", action="append", choices=list(ROLES))
    parser.add_argument(
        "--count", type=int, default=200, help="questions of reasoning-gym; 0 leaves them out"
    )
    options = parser.parse_args(arguments)
    quiet_libraries()
    torch.set_num_threads(1)
    try:
        for line in compare(Run.open(options.run), options.stage, options.role or list(ROLES), options.count):
            print(line, flush=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def compare(run: Run, stage: str, roles: Sequence[str], count: int) -> Iterator[str]:
    """Table of the base and of every role's weights; `count` questions of reasoning-gym."""
    model, tokenizer = load_weights(run, BASE, roles[0])
    before = answer_all(model, tokenizer, count)
    rated = rate(model, before.greedy)
    yield "| weights | instructions, greedy | at temperature 1 | reasoning-gym | nats per token |"
    yield "|---|---|---|---|---|"
    yield f"| base | {show(before.right)} | {show(before.right_sampled)} | {show(before.reasoned)} | |"
    for role in roles:
        model, _ = load_weights(run, stage, role)
        after = answer_all(model, tokenizer, count)
        cells = [
            show(after.right, before.right),
            show(after.right_sampled, before.right_sampled),
            show(after.reasoned, before.reasoned),
            write_change(paired_interval(rate(model, before.greedy), rated)),
        ]
        yield f"| {role} after {stage} | {' | '.join(cells)} |"


def answer_all(model: Any, tokenizer: Any, count: int) -> Answers:
    """Answer all instructions and the first `count` questions of reasoning-gym."""
    texts = [one.text for one in INSTRUCTIONS]
    greedy = reply_to(model, tokenizer, texts)
    sampled = [reply_to(model, tokenizer, texts, seed=seed) for seed in range(NUM_SAMPLES)]
    return Answers(
        greedy=greedy,
        right=[float(one.is_right(reply.text)) for one, reply in zip(INSTRUCTIONS, greedy, strict=True)],
        right_sampled=[
            sum(one.is_right(replies[place].text) for replies in sampled) / NUM_SAMPLES
            for place, one in enumerate(INSTRUCTIONS)
        ],
        reasoned=reason(model, tokenizer, count) if count else [],
    )


def reason(model: Any, tokenizer: Any, count: int) -> list[float]:
    folder, family = read_suite(REASONING_GYM, count)
    replies = reply_to(model, tokenizer, [one.brief for one in folder.scenarios])
    return [
        max(family.verify(scenario, json.dumps({"answer": one})).reward for one in list_answers(reply.text))
        for scenario, reply in zip(folder.scenarios, replies, strict=True)
    ]


def list_answers(text: str) -> list[str]:
    """Return what may be meant as the short answer of a reply: its lines, and its last word."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [*lines, lines[-1].split()[-1].strip(".!*`'\"")] if lines else [""]


@torch.inference_mode()
def reply_to(model: Any, tokenizer: Any, messages: Sequence[str], *, seed: int | None = None) -> list[Reply]:
    """Replies of at most 64 tokens to single messages of a user: greedy, or at temperature 1 by the seed."""
    found: list[Reply] = []
    model.eval()
    for first in range(0, len(messages), BATCH):
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": message}], add_generation_prompt=True, return_dict=False
            )
            for message in messages[first : first + BATCH]
        ]
        ids, mask = pad_left(prompts, tokenizer.eos_token_id)
        if seed is not None:
            torch.manual_seed(seed)
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=MAX_TOKENS,
            do_sample=seed is not None,
            temperature=None if seed is None else 1.0,
            top_p=None,
            top_k=None if seed is None else 0,
            pad_token_id=tokenizer.eos_token_id,
        )
        for prompt, row in zip(prompts, made[:, ids.shape[1] :].tolist(), strict=True):
            end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
            text = tokenizer.decode(row[:end], skip_special_tokens=True)
            found.append(Reply(prompt=prompt, ids=row[:end], text=text))
    return found


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(map(len, rows))
    ids = torch.tensor([[pad] * (length - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@torch.inference_mode()
def rate(model: Any, replies: Sequence[Reply]) -> list[float]:
    """Mean log-probability per token that the model gives each of these replies."""
    rated: list[float] = []
    for reply in replies:
        ids = torch.tensor([reply.prompt + reply.ids])
        logits = model(input_ids=ids).logits[0, len(reply.prompt) - 1 : -1].float()
        chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(reply.ids)[:, None])
        rated.append(float(chosen.mean()))
    return rated


def show(values: Sequence[float], before: Sequence[float] = ()) -> str:
    """Mean with its interval, and with its change where there is a before."""
    if not values:
        return ""
    one = mean_interval(values)
    text = f"{one:.2f}"
    return f"{text}, {write_change(paired_interval(values, before))}" if before else text


def write_change(change: Interval) -> str:
    return f"{change:+.3f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
