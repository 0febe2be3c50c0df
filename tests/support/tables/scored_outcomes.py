"""Outcomes of evaluated scenarios by hand, and settings of a run that is evaluated in a second."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.scoring.outcomes import (
    FOLDER,
    MODES,
    RoleOutcome,
    StagePlays,
    TeamOutcome,
    outcome_path,
    write_outcomes,
)

TINY = (
    "num_workers=0",
    "model.hidden_size=32",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.intermediate_size=48",
    "grpo.max_completion_tokens=12",
    "marl.max_completion_tokens=12",
    "evaluation.num_role_scenarios=12",
    "evaluation.num_team_scenarios=8",
)


def outcome(number: int) -> RoleOutcome:
    return RoleOutcome(
        key=f"cto/test/0/{number}/1",
        difficulty=1 + number % 2,
        sector="bank" if number % 4 else "retail",
        reward=number / 10,
        exact=number == 9,
        feasible=True,
        failure=None if number == 9 else "suboptimal" if number else "not_json",
        parts={"graded": number / 10} if number else {},
        turns=2,
        tool_calls=1,
        failed_calls=number % 2,
        tokens=10 * number,
        truncated=False,
        well_formed=bool(number),
        escalated=False,
        answer="",
    )


def team_outcome(
    offers: dict[str, int], *, false_claims: dict[str, int] | None = None, funded: tuple[str, ...] = ()
) -> TeamOutcome:
    """An outcome in which CTO and Risk report; a seat that is not in `offers` wrote nothing readable."""
    return TeamOutcome(
        key="team/test/0/0/1",
        difficulty=1,
        sector="bank",
        reward=0.5,
        value=0.5,
        consensus=1.0,
        unresolved=0.0,
        escalation=0.0,
        agreement=1.0,
        escalated=False,
        well_formed=1.0,
        offers=offers,
        false_claims=false_claims or dict.fromkeys(offers, 0),
        funded=list(funded),
        turns=9,
        tokens=99,
        sequential=40,
        context=120,
        reports={"cto": "x", "risk": "y"},
        decision="",
        votes={},
        asked=[],
        cut_off=[],
        explanation="",
        best_option=False,
        hidden=False,
    )


def role_plays(role: str, stage: str, rewards: Sequence[float], greedy: Sequence[float] = ()) -> StagePlays:
    """Plays of these rewards, each call of tools refused once in ten plays."""

    def play(number: int, reward: float) -> RoleOutcome:
        key, failed = f"{role}/test/0/{number}/1", int(number % 10 == 0)
        played = replace(outcome(1), key=key, reward=reward, tokens=40, failed_calls=failed)
        return replace(played, exact=reward == 1, feasible=reward > 0)

    sampled, twin = ([play(*one) for one in enumerate(values)] for values in (rewards, greedy))
    return StagePlays(owner=role, stage=stage, sampled=sampled, greedy=twin)


def team_plays(
    stage: str,
    rewards: Sequence[float],
    greedy: Sequence[float] = (),
    agreement: Sequence[float] = (1.0, 0.5),
) -> StagePlays:
    """Episodes whose V is their reward; the shares of agreement take turns."""

    def play(number: int, reward: float) -> TeamOutcome:
        share = agreement[number % len(agreement)]
        key = f"team/test/0/{number}/1"
        return replace(
            team_outcome({}), key=key, reward=reward, value=reward, consensus=0.75, agreement=share
        )

    sampled, twin = ([play(*one) for one in enumerate(values)] for values in (rewards, greedy))
    return StagePlays(owner="team", stage=stage, sampled=sampled, greedy=twin)


def store_plays(run_path: Path, plays: StagePlays) -> None:
    """Write the plays where a run keeps them."""
    for mode, rows in zip(MODES, (plays.sampled, plays.greedy), strict=True):
        if rows:
            write_outcomes(outcome_path(run_path / FOLDER, plays.stage, plays.owner, mode), rows)
