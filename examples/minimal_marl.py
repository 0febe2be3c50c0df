"""Joint multi-agent RL of a team in one short file: play, score, credit, rows, update.

    python examples/minimal_marl.py            # 10 steps on a CPU, a few seconds; prints the team reward

Five tiny models of random weights play company cases as CTO, COO, Risk, Cost and ReconcileGPT. An untrained
model says nothing that could be rewarded, so each picks one of two written answers, by how
likely it finds them. The stages are those of `emads`; only the engine is this file's own.
"""

import argparse
import random
from functools import partial
from typing import Any

import torch

from roles.registry import ROLES
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.agents.scripted_policies import baseline_team, oracle_team
from simulator.chat import Chat
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.hf_chat import HFChat
from simulator.reward import TeamRewardWeights
from training.config.model_config import ModelConfig
from training.config.rl_config import MarlConfig
from training.config.run_config import DataConfig, RunConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer
from training.rl.credit import CreditAssigner, Shared, dr_grpo
from training.rl.team.play import AssessPlayer
from training.rl.team.score import TeamScorer
from training.rl.update import PolicyUpdater

SHAPE = ModelConfig(hidden_size=32, num_layers=1, num_heads=2, intermediate_size=48)
CONFIG = MarlConfig(report_sets=4, decisions_per_set=2, learning_rate=0.03, max_completion_tokens=700)


class ChoosingEngine:
    """Samples an expert's answer or an empty one by how likely the policy's model finds their tokens."""

    def __init__(
        self, models: dict[str, Any], scenarios: list[TeamScenario], chat: Chat, end_id: int
    ) -> None:
        self.models, self.chat, self.end_id = models, chat, end_id
        expert = oracle_team(scenarios, report_habit="measured", funding_habit="exact")
        self.writers = [expert, baseline_team(scenarios, "blind")]
        self.version = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        """Choose an answer, with the log-probabilities of its tokens."""
        transcript, role = self.chat.decode(request.prompt_ids), request.policy
        answers = []
        for number, team in enumerate(self.writers):
            rng = random.Random(f"{number}/{request.session}/{len(request.prompt_ids)}")
            token_ids = (*self.chat.encode(team[role](transcript, rng)), self.end_id)
            answers.append((token_ids, self.logprobs(role, request.prompt_ids, token_ids)))
        chances = torch.softmax(
            torch.tensor([sum(logprobs) / len(logprobs) for _, logprobs in answers]), 0
        ).tolist()
        rng = random.Random(f"{self.version}/{request.session}/{len(request.prompt_ids)}")
        ((token_ids, logprobs),) = rng.choices(answers, chances)
        return Completion(
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason="stop",
            policy_version=f"{role}@{self.version}",
        )

    def logprobs(self, role: str, prompt: tuple[int, ...], answer: tuple[int, ...]) -> tuple[float, ...]:
        """Log-probability of each token of the answer."""
        with torch.no_grad():
            logits = self.models[role](input_ids=torch.tensor([prompt + answer])).logits[0]
        predicted = torch.log_softmax(logits.float()[len(prompt) - 1 : -1], -1)
        return tuple(predicted.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist())

    def end_session(self, session: str) -> None:
        """Do nothing: no session keeps anything."""


def train(num_steps: int, num_scenarios: int) -> list[float]:
    """Train the team on the same scenarios in every step; the mean team reward of each step."""
    scenarios = [generate("train", 0, index, 1) for index in range(num_scenarios)]
    tokenizer = train_tokenizer(corpus(RunConfig(data=DataConfig(difficulties=(1,))), 40), 512)
    chat = HFChat(tokenizer, short_prompts=True)
    models = {role: build_tiny_model(SHAPE, tokenizer, seed) for seed, role in enumerate(ROLES)}
    engine = ChoosingEngine(models, scenarios, chat, chat.end_id)

    player = AssessPlayer(
        config=CONFIG,
        chat=chat,
        roles=tuple(ROLES),
        make_game=partial(PlanGame, style="short"),
    )
    scorer = TeamScorer(weights=TeamRewardWeights())
    credit = CreditAssigner(scheme=Shared(), estimator=dr_grpo, votes="report", weights=scorer.weights)
    updater = PolicyUpdater(models, CONFIG, rate_factors=CONFIG.rate_factors)

    rewards = []
    for step in range(num_steps):
        groups = player.play(engine, scenarios, f"step {step}")  # scenarios -> episodes
        scored = scorer.score(groups)  # -> rewards
        advantages = credit.assign(tuple(ROLES), scored)  # -> scores -> advantages
        rows = credit.make_rows(scored, advantages)  # -> training rows
        updater.update(rows)  # -> new weights
        engine.version += 1
        of_step = [reward for group in scored for one in group.report_sets for reward in one.rewards]
        rewards.append(sum(of_step) / len(of_step))
        print(f"step {step + 1:2}  team reward {rewards[-1]:.3f}", flush=True)
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser(description="Joint multi-agent RL of a tiny team.")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--scenarios", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(options.steps, options.scenarios)


if __name__ == "__main__":
    main()
