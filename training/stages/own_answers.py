"""The stage `sft_own`: SFT on a role's own right answers beside its demonstrations, a control of GRPO.

It samples as many answers from the SFT weights as GRPO plays, on the same scenarios, keeps those that the
verifier gives the full reward, and learns from as many transcripts of these and of the demonstrations
together. Source: rejection sampling as in STaR (arXiv:2203.14465) and RFT (arXiv:2308.01825), one round.
"""

import json
from collections.abc import Sequence

from scenarios.registry import families
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from simulator.export.atomic_files import write_atomic
from training.config.run_config import FIRST_GRPO_INDEX
from training.data.demonstrations import TokenRow
from training.models.adapters import roles_of
from training.models.weights import load_weights
from training.rl.hosts.host import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.grpo import draw_scenario
from training.stages.sft import count_control_steps, first_further_row, train_role

STAGE = "sft_own"
FOLDER = "own_answers"  # in the run folder: a file of kept transcripts per owner
FULL_REWARD = 1.0  # of the verifier: nothing less is kept


def train_sft_own(run: Run, owner: str, source: str) -> None:
    """Sample, keep what is right, and go on with SFT on it and on the demonstrations."""
    file = run.path / FOLDER / f"{owner}.jsonl"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        kept_rows = sample_right(run, owner, source)
        write_atomic(file, "".join(json.dumps([row.token_ids, row.loss_mask]) + "\n" for row in kept_rows))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    kept = [TokenRow(token_ids=tuple(ids), loss_mask=tuple(mask)) for ids, mask in lines]
    steps, first_row = count_control_steps(run.config, owner), first_further_row(run)
    start = (run, source, owner)
    train_role(run, STAGE, owner, steps, first_row=first_row, start=start, own_rows=kept)


def sample_right(run: Run, owner: str, source: str) -> list[TokenRow]:
    """The sampled transcripts of full reward on the scenarios that GRPO plays, equal ones once."""
    config = run.config
    grpo = config.grpo
    model, tokenizer = load_weights(run, source, owner)
    chat = make_chat(tokenizer, config)
    player = SoloPlayer(config=grpo, chat=chat, families=families(config.model.prompts))
    models = dict.fromkeys(roles_of(owner), model)
    rows: dict[TokenRow, None] = {}
    size = grpo.prompts_per_step
    for step in range(grpo.max_steps):
        engine = serve_roles(TransformersEngine(end_id=chat.end_id, seed=config.seed), models, step)
        places = range(step * size, (step + 1) * size)
        scenarios = [draw_scenario(run, owner, "train", FIRST_GRPO_INDEX, place) for place in places]
        groups = player.play(engine, scenarios, f"{STAGE}/{step}")
        played = [one for group in groups for one in group.episodes]
        rows |= dict.fromkeys(keep_right([one for one in played if isinstance(one, SoloEpisode)]))
    return list(rows)


def keep_right(episodes: Sequence[SoloEpisode]) -> list[TokenRow]:
    """The transcripts of full reward, observations masked."""
    right = [one.trajectory for one in episodes if one.verdict.reward >= FULL_REWARD]
    return [TokenRow(token_ids=tuple(one.token_ids), loss_mask=tuple(one.loss_mask)) for one in right]
