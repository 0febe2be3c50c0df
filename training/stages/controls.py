"""The controls of GRPO and of joint training: the same compute spent in other ways.

Equal compute is counted in learnt transcripts, a config's numbers alone. A role that goes on with SFT or GRPO
in place of joint training learns from as many of its own transcripts as joint training gives it. The single
agent's transcript holds what all seats write at one table, so it stands for one of every role: as many as
each role has in SFT, then as many as it has in GRPO and joint training.

`sft_own` is a control of GRPO: it samples as many answers from the SFT weights as GRPO plays, on the same
scenarios, keeps those of full reward, and learns from as many transcripts of these and of demonstrations.
Source: rejection sampling as in STaR (arXiv:2203.14465) and RFT (arXiv:2308.01825), one round.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.scoring.baselines import play_alone
from evaluation.scoring.outcomes import TEAM, StagePlays
from evaluation.scoring.sealed_plays import score_all
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.base import Scenario, Split
from scenarios.registry import families
from scenarios.team.single import SINGLE
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.own_pass import count_positions
from simulator.export.atomic_files import write_atomic
from training.config.rl_config import GrpoConfig
from training.config.run_config import FIRST_GRPO_INDEX, FIRST_MARL_INDEX, RunConfig
from training.data.demonstrations import TokenRow, demonstration_row, team_scenario
from training.data.single_agent import make_scenario, single_family, single_role
from training.models.adapters import list_owners, roles_of
from training.models.engine_factory import serve
from training.models.weights import load_trainable, load_weights
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_folder import Run
from training.stages.evaluation import evaluate_once, play_sealed
from training.stages.from_config import make_chat, test_cases
from training.stages.rl import draw_scenario, train_on_scenarios
from training.stages.rl import train_role as train_role_by_grpo
from training.stages.sft import (
    NUM_VALIDATION_ROWS,
    count_control_steps,
    count_rows,
    first_further_row,
    report_drawn,
    train_on_rows,
    train_role,
)

STAGE = "sft_own"
FOLDER = "own_answers"  # in the run folder: a file of kept transcripts per owner
FULL_REWARD = 1.0  # of the verifier: nothing less is kept


def train_sft_own(run: Run, owner: str, source: str) -> None:
    """Sample, keep what is right, and go on with SFT on it and on the demonstrations."""
    file = run.path / FOLDER / f"{owner}.jsonl"
    if not file.is_file():
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
        for one in [one for group in groups for one in group.episodes if isinstance(one, SoloEpisode)]:
            if one.verdict.reward >= FULL_REWARD:
                mask = tuple(one.trajectory.loss_mask)  # observations are not learnt
                rows[TokenRow(token_ids=tuple(one.trajectory.token_ids), loss_mask=mask)] = None
    return list(rows)


NUM_SEATS_IN_ONE = len(TEAM_ROLES) - 1  # the single agent's longest turn offers for all of them


def count_joint_transcripts(config: RunConfig, role: str) -> int:
    """The role's transcripts that joint training plays and learns from; 0 of a role without a seat."""
    marl = config.marl
    cases = marl.max_steps * marl.scenarios_per_step * (role in TEAM_ROLES)
    decisions = marl.decisions_per_set if marl.protocol == "assess" else 1
    return cases * marl.report_sets * (decisions if role == RECONCILER else 1)


def count_sft_steps(config: RunConfig, owner: str) -> int:
    """SFT steps that learn from as many transcripts as joint training, a pass over one counted once."""
    count = sum(count_joint_transcripts(config, role) for role in roles_of(owner))
    return max(1, round(count * config.marl.updates_per_batch / config.sft.batch_size))


def count_grpo_steps(config: RunConfig, owner: str) -> int:
    """GRPO steps that play as many transcripts as joint training."""
    count = sum(count_joint_transcripts(config, role) for role in roles_of(owner))
    return max(1, round(count / (config.grpo.prompts_per_step * config.grpo.group_size)))


def count_single_sft_steps(config: RunConfig) -> int:
    """SFT steps of the single agent: it learns from as many transcripts as each role does."""
    num_roles = len(roles_of(list_owners(config.model)[0]))
    return max(1, round(config.sft.max_steps / num_roles))


def count_single_grpo_steps(config: RunConfig) -> int:
    """GRPO steps of the single agent: as many as a role's, then one plan for every joint decision."""
    return config.grpo.max_steps + count_grpo_steps(config, RECONCILER)


def train_grpo_instead(run: Run, owner: str, source: str) -> None:
    """Go on with the role's own GRPO, on scenarios that it did not see."""
    config = run.config
    grpo = config.grpo.model_copy(update={"max_steps": count_grpo_steps(config, owner)})
    first = FIRST_GRPO_INDEX + config.grpo.max_steps * config.grpo.prompts_per_step
    train_role_by_grpo(run, "grpo_instead", owner, grpo, first_index=first, source=source, on_hosts=True)


def train_single_sft(run: Run, owner: str, source: str) -> None:
    """Fine-tune the single agent on as many demonstrations and steps as each role."""
    config = run.config
    model, tokenizer = load_trainable(run, source, owner)
    chat, style = make_chat(tokenizer, config), config.model.prompts
    family, role = single_family(style, config.team_reward), single_role(style)

    def write(split: Split, count: int) -> list[TokenRow]:
        cases = (_draw(config, split, index) for index in range(count))
        rows = (demonstration_row(family, case, chat, {SINGLE: role}) for case in cases)
        return list(report_drawn(rows, 1))

    steps = count_single_sft_steps(config)
    train_on_rows(
        run,
        "single_sft",
        SINGLE,
        model,
        tokenizer,
        write("train", count_rows(config, steps)),
        write("validation", NUM_VALIDATION_ROWS if config.sft.validate_every else 0),
        start=(run, source, owner),
        max_steps=steps,
    )


def train_single_grpo(run: Run, owner: str, source: str) -> None:
    """Train the single agent by GRPO on the team reward of its plans, on joint training's cases."""
    config = run.config
    style, grpo = config.model.prompts, _single_grpo_config(config)
    num_validation = grpo.guards.validation_scenarios if grpo.guards.validate_every else 0
    train_on_scenarios(
        run,
        SINGLE,
        lambda place: _draw(config, "train", FIRST_MARL_INDEX + place),
        [_draw(config, "validation", place) for place in range(num_validation)],
        stage="single_grpo",
        source=source,
        grpo=grpo,
        families={SINGLE: single_family(style, config.team_reward)},
        roles={SINGLE: single_role(style)},
    )


def evaluate_single(path: Path, stage: str) -> None:
    """Score the single agent after one of its stages on the team's sealed cases."""

    def play_all(run: Run) -> StagePlays:
        config, grpo = run.config, _single_grpo_config(run.config)
        model, tokenizer = load_weights(run, stage, SINGLE)
        chat = make_chat(tokenizer, config)
        with serve(run, {SINGLE: model}, stage, end_id=chat.end_id) as engine:

            async def play(
                part: Sequence[Any], temperature: float, first_place: int, stream: str
            ) -> list[Any]:
                episodes = await play_alone(
                    part,
                    engine=engine,
                    chat=chat,
                    temperature=temperature,
                    max_completion_tokens=grpo.max_completion_tokens,
                    stream=stream,
                    style=config.model.prompts,
                    policy=SINGLE,
                    max_turns=grpo.max_turns,
                    max_total_tokens=count_positions(model.config),  # it may call tools on and on
                    first_place=first_place,
                )
                return score_all(part, episodes, config.team_reward)

            return play_sealed(run, stage, TEAM, test_cases(config), play)

    evaluate_once(path, f"evaluate/{stage}/team", 20, play_all)


def _single_grpo_config(config: RunConfig) -> GrpoConfig:
    """The run's GRPO section with the single agent's steps and room for a turn that speaks for all seats."""
    return config.grpo.model_copy(
        update={
            "max_steps": count_single_grpo_steps(config),
            "max_completion_tokens": NUM_SEATS_IN_ONE * config.marl.max_completion_tokens,
            "agent": "react",
            "model_share": 0.0,  # labels are of roles
        }
    )


def _draw(config: RunConfig, split: Split, index: int) -> Scenario:
    """The team case of this index as the single agent reads it."""
    return make_scenario(team_scenario(config.data, split, index), config.model.prompts)
