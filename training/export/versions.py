"""Digests of the game that a team was trained for: its graphs, what seats read, what verifiers say.

Each is taken from behaviour on pinned cases, so it changes when that changes and at no other time.
"""

import hashlib
import json
import random
from dataclasses import asdict
from typing import Any

from evaluation.scoring.team_players import TablePlay, check_reports, play_experts
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Style
from scenarios.registry import families
from scenarios.team import PlanGame, TeamScenario, generate, judge_decision
from simulator.governance.governed_graph import open_full
from simulator.graph.team_graph import list_edges, open_team
from simulator.reward import TeamRewardWeights, combine_parts
from training.config.model_config import ModelConfig
from training.export.team_folder import Versions
from training.runs.provenance import find_versions

PINNED = ((0, 1), (1, 5))  # index and difficulty of validation cases of seed 0
PLAYERS = (("measured", "exact"), (None, None))  # habits of the experts that play them


def describe_versions(model: ModelConfig) -> Versions:
    """Return the digests of this installation, for a model's style of prompts and its questions."""
    style = model.prompts
    cases = [generate("validation", 0, index, difficulty) for index, difficulty in PINNED]
    return Versions(
        emads=find_versions()["emads"] or "unknown",
        graph=_digest([list_edges(open_team()), list_edges(open_full())]),
        prompts=_digest([_list_prompts(case, PlanGame(case, style, model.questions)) for case in cases]),
        verifier=_digest([_list_verdicts(style), *(_judge_plays(case) for case in cases)]),
    )


def find_changes(then: Versions, now: Versions) -> list[str]:
    """Name the parts of the game that differ between two installations; `emads` alone is no difference."""
    return [part for part in ("graph", "prompts", "verifier") if getattr(then, part) != getattr(now, part)]


def _list_prompts(case: TeamScenario, game: PlanGame) -> list[Any]:
    play = _play(case, *PLAYERS[0])
    reports = {
        seat: game.read_report(seat, report.model_dump_json()) for seat, report in play.reports.items()
    }
    decision = play.decision.model_dump(mode="json")
    texts: list[Any] = [game.write_decision_brief(reports)]
    for seat in (*case.seats, RECONCILER):
        role = game.prompt_role(seat)
        texts.append([role.title, role.mandate, *(tool.as_chat_tool() for tool in role.tools)])
    for seat in case.seats:
        texts += [game.write_report_brief(seat), game.write_vote_brief(decision, seat, reports)]
    return texts


def _list_verdicts(style: Style) -> list[Any]:
    """Return what each role's verifier says of its baselines, and the formula of the team reward."""
    said: list[Any] = [combine_parts(0.5, 0.75, 0.25, 1.0, TeamRewardWeights())]
    for name in ROLES:
        family = families(style)[name]
        scenario = family.generate("validation", 0, 0, 1)
        answers = [play(scenario, random.Random(0)) for play in family.baselines.values()]
        said += [asdict(family.verify(scenario, answer)) for answer in ("", *answers)]
    return said


def _judge_plays(case: TeamScenario) -> list[Any]:
    plays = [_play(case, *habits) for habits in PLAYERS]
    return [asdict(judge_decision(case, check_reports(case, play.reports), play.decision)) for play in plays]


def _play(case: TeamScenario, report_habit: str | None, funding_habit: str | None) -> TablePlay:
    return play_experts(report_habit, funding_habit)(case, random.Random(0))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=list).encode()).hexdigest()
