"""Run folders with made-up scores and metrics, for tests of the report."""

import json
import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scored_outcomes import role_plays, team_plays

from evaluation.minutes.transcript import ChosenCase, EpisodeTranscript
from evaluation.summary.run_summary import build_summary, write_summary

ROLES = ("cto", "coo", "risk", "cost", "reconcile")
QUALITY = {
    "random": 0.1,
    "heuristic": 0.4,
    "oracle": 1.0,
    "untrained": 0.0,
    "sft": 0.6,
    "sft_more": 0.65,
    "grpo": 0.75,
    "marl": 0.74,
}
TEAM = {"random": 0.1, "oracle_common": 0.55, "oracle_best": 0.75, "oracle": 1.0, "grpo": 0.5, "marl": 0.7}


def summarise(roles: tuple[str, ...] = ROLES, team: dict[str, float] = TEAM, n: int = 40) -> dict[str, Any]:
    rng = random.Random(5)
    draws = [rng.random() for _ in range(n)]
    plays = [
        role_plays(role, stage, rewards, rewards)
        for role in roles
        for stage, quality in QUALITY.items()
        for rewards in [[float(draw < quality) for draw in draws]]
    ]
    plays += [
        team_plays(stage, rewards, rewards)
        for stage, quality in team.items()
        for rewards in [[float(draw < quality) for draw in draws]]
    ]
    return build_summary(
        plays,
        seed=3,
        wall_s=600.0,
        versions={"torch": "2.13.0"},
        weights_changed={},
        signal={},
    )


def side(label: str, decision: str) -> EpisodeTranscript:
    return EpisodeTranscript(
        label=label,
        scenario_key="team/test/0/1/1",
        briefs={"cto": "Northbank. CTO seat."},
        reports={"cto": '{"offers": [], "needs": [], "veto": []}'},
        asked=(),
        decision=decision,
        votes={},
        cut_off=(),
        error=None,
        scores={"reward": 0.5},
        explanation="",
    )


def metric_lines() -> list[str]:
    lines = [
        json.dumps({"stage": f"{stage}/{role}", "step": step, "time_s": 1.5, "metrics": metrics})
        for role in ROLES
        for step in (0, 10, 20)
        for stage, metrics in (
            ("sft", {"loss": math.exp(-step)}),
            ("grpo", {"verified": 0.5 + step / 100, "entropy": 0.4, "kl_to_start": 0.01}),
        )
    ]
    for step in (0, 1, 2):
        metrics = {"team_reward": 0.5 + step / 10, "own_score/cto": 0.9, "entropy/cost": 0.2}
        lines.append(json.dumps({"stage": "marl", "step": step, "time_s": 9.0, "metrics": metrics}))
    return lines


def shown(*plays: EpisodeTranscript) -> dict[str, Any]:
    """The part of a summary that shows these plays of one case."""
    return {"cases": [asdict(ChosenCase(choice="median", num_cases=24, is_greedy=True, plays=plays))]}


def full_run(path: Path, summary: dict[str, Any]) -> Path:
    plays = (side("SFT", '{"option": "A"}'), side("GRPO", '{"option": "A"}'), side("MARL", '{"option": "B"}'))
    write_summary(path, summary | shown(*plays))
    (path / "metrics.jsonl").write_text("\n".join([*metric_lines(), '{"stage": "ma']))
    (path / "config.yaml").write_text("name: trial\nnote: <b>bold</b>\n")
    (path / "provenance.json").write_text(
        json.dumps({"created_s": 0, "packages": {"torch": "2.13.0", "vllm": None}, "seeds": {"run": 3}})
    )
    return path
