"""The list of probes in order, and how much each tier of an audit (pr, full) does."""

from collections.abc import Callable, Mapping, Sequence

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.answer_search import probe_search
from evaluation.audit.probes.blind_players import probe_blind
from evaluation.audit.probes.hostile_outputs import probe_hostile_outputs
from evaluation.audit.probes.oracle_answers import probe_optimum
from evaluation.audit.probes.reward_hacks import probe_hacks
from evaluation.audit.probes.rewritten_answers import probe_rewrites
from evaluation.audit.records import Row, Subject, Tier
from evaluation.audit.registry import list_subjects
from roles.errors import unknown

Probe = Callable[[CaseSample, Tier], Row]

PROBES: Mapping[str, Probe] = {
    "V1": probe_hostile_outputs,
    "V2": probe_rewrites,
    "V3": probe_hacks,
    "V4": probe_optimum,
    "V5": probe_blind,
    "V6": probe_search,
}
DERIVED_PROBES = ("V1", "V4")  # of a family without a file in evaluation/audit/families
TIERS: Mapping[str, Tier] = {
    "pr": Tier(
        name="pr",
        hostile_outputs=1000,
        rewrites=300,
        hack_cases=80,
        hack_seeds=1,
        optima=50,
        blind_cases=500,
        constant_cases=60,
        search_calls=500,
        calls_per_case=50,
        team_episodes=100,
        blind_difficulties=(1, 5),
    ),
    "full": Tier(
        name="full",
        hostile_outputs=20_000,
        rewrites=10_000,
        hack_cases=100,
        hack_seeds=5,
        optima=2000,
        blind_cases=5000,
        constant_cases=500,
        search_calls=20_000,
        calls_per_case=200,
        team_episodes=5000,
        blind_difficulties=(1, 5, 8, 10),
    ),
}
TEAM = "team"  # stands for all four of the team's verdicts


def choose_tier(name: str) -> Tier:
    """Return the tier of that name.

    Raises:
        UserError: unknown tier.
    """
    if name not in TIERS:
        raise unknown("tier", name, list(TIERS))
    return TIERS[name]


def choose_subjects(names: Sequence[str]) -> list[Subject]:
    """Return the verifiers of these families, all for none.

    Raises:
        UserError: unknown family.
    """
    subjects = list_subjects()
    families = list(dict.fromkeys(name.split("-")[0] for name in subjects))
    for name in names:
        if name not in families:
            raise unknown("family", name, families)
    return [subject for name, subject in subjects.items() if not names or name.split("-")[0] in names]
