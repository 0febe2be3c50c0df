"""Joint learners of tiny models on scripted words, the cases they play, and their engines' records."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from tiny_models import small_model, tiny_chat

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import InfrastructureError
from roles.registry import ROLES
from roles.team import SPECIALISTS
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.engines.base import Completion, CompletionRequest
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.rl_config import MarlConfig
from training.learner.rows import TrainingRow
from training.rl.loop import RLLearner
from training.rl.records import ScoredGroup, ScoredReportSet
from training.rl.team.algorithm import make_team_learner

CONFIG = MarlConfig().changed(
    scenarios_per_step=3,
    report_sets=3,
    decisions_per_set=2,
    credit__scheme="shared",  # the other schemes: test_joint_options.py
    learning_rate=1e-3,
    rate_factors={},
    max_completion_tokens=600,
)
WEIGHTS = TeamRewardWeights()
SHORT_GAME: MakeGame = partial(PlanGame, style="short")
SEATS = SPECIALISTS


@cache
def draw_case(index: int) -> TeamScenario:
    return generate("train", 0, index, 1 + index % 2)


def draw(count: int) -> list[TeamScenario]:
    return [draw_case(index) for index in range(count)]


class FaultyEngine(ScriptedModelEngine):
    """Loses the sessions that `fails` names."""

    fails: Callable[[str], bool] = staticmethod(lambda session: False)

    async def complete(self, request: CompletionRequest) -> Completion:
        if self.fails(request.session):
            await asyncio.sleep(0)
            raise InfrastructureError("worker lost")
        return await super().complete(request)


Engines = list[Any]


def make_learner(
    config: MarlConfig = CONFIG, *, seed: int = 0, scale: float = 1.0, **options: Any
) -> RLLearner:
    models = {role: small_model(place, scale) for place, role in enumerate(ROLES)}
    return make_team_learner(models, config, chat=tiny_chat(), reward_weights=WEIGHTS, seed=seed, **options)


def make_rows(learner: RLLearner, groups: Sequence[ScoredGroup]) -> Mapping[str, Sequence[TrainingRow]]:
    """Every role's rows of scored groups."""
    return learner.credit.make_rows(groups, learner.credit.assign(tuple(learner.models), groups))


def play(learner: RLLearner, scenarios: Sequence[TeamScenario], first_place: int = 0) -> list[ScoredGroup]:
    """The scored groups of one step."""
    return list(learner.scorer.score(learner.play(scenarios, first_place)))


def sets_of(groups: Sequence[ScoredGroup]) -> list[tuple[TeamScenario, ScoredReportSet]]:
    """All report sets of the groups, each with its scenario."""
    return [(group.scenario, one) for group in groups for one in group.report_sets]


def rows_of(learner: RLLearner, role: str, groups: Sequence[ScoredGroup]) -> Sequence[TrainingRow]:
    return make_rows(learner, groups)[role]


def transcripts(engine: Any) -> dict[str, set[tuple[Any, ...]]]:
    """Of every policy: (ids, own-token mask, logprobs) of each session, from the engine's own record."""
    ids: dict[tuple[str, str], tuple[int, ...]] = {}
    own: dict[tuple[str, str], dict[int, float]] = {}
    for request, completion in engine.calls:
        key, start = (request.policy, request.session), len(request.prompt_ids)
        ids[key] = request.prompt_ids + completion.token_ids
        own.setdefault(key, {}).update(zip(range(start, len(ids[key])), completion.logprobs, strict=True))
    found: dict[str, set[tuple[Any, ...]]] = {}
    for key, tokens in ids.items():
        places = range(len(tokens))
        row = (tokens, tuple(int(i in own[key]) for i in places), tuple(own[key].get(i, 0.0) for i in places))
        found.setdefault(key[0], set()).add(row)
    return found


SMALL = CONFIG.changed(scenarios_per_step=2)


def change(**options: Any) -> MarlConfig:
    return SMALL.changed(**options)
