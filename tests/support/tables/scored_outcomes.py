"""Outcomes of evaluated scenarios by hand, and settings of a run that is evaluated in a second."""

from evaluation.scoring.outcomes import RoleOutcome, TeamOutcome

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
        questions=0,
        turns=9,
        tokens=99,
        reports={"cto": "x", "risk": "y"},
        decision="",
        votes={},
    )
