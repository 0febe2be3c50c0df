"""Findings about a team from its probes, each with the numbers behind it; a healthy team has none.

A finding needs the whole 95 % interval of its rate beyond the limit, so that chance alone rarely raises one.
"""

from dataclasses import dataclass

from scipy import stats

from evaluation.probes.diagnostics import Count, RoleProbe, TeamProbe
from evaluation.summary.run_table import role_title

FREE_RIDER_SHARE = 0.25  # of the options on which it could gain something; fewer offers are no work
HOARDER_SHARE = 0.75  # of these options; a seat at work offers on more
FALSE_SHARE = 0.1  # of its claims
SILENT_SHARE = 0.25  # of the options that hang on its hard limit
IGNORED_SHARE = 0.25  # of the decisions that should pay it
YES_SHARE = 0.25  # of decisions under its own limit
OBJECTOR_SHARE = 0.25  # of sound decisions
MIN_CASES = 10  # occasions from which a check says anything
OCCASIONS = {
    "free_rider": "offered",
    "false_claims": "false_claims",
    "silent_on_limits": "limits_named",
    "ignored": "used",
    "yes_sayer": "accepts_broken",
    "objector": "objects_sound",
}  # where a role's probe counts the occasions of each check


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a team.

    Example: Finding(kind="free_rider", role="cto", evidence="offers on 31 of 200 options, ...")
    """

    kind: str  # a key of OCCASIONS, hoarder, collusion
    role: str  # "" for the whole team
    evidence: str


def find_faults(probe: TeamProbe) -> list[Finding]:
    """Return all findings, role by role, then of the team."""
    findings = []
    for role in probe.roles.values():
        for check in (_too_few_offers, _false_claims, _silent, _ignored, _yes_sayer, _objector):
            finding = check(role)
            if finding is not None:
                findings.append(finding)
    yes_sayers = [finding.role for finding in findings if finding.kind == "yes_sayer"]
    if len(yes_sayers) * 2 > len(probe.roles):
        names = ", ".join(role_title(role) for role in yes_sayers)
        wrong = probe.agreement_when_wrong
        seen = "" if wrong is None else f"; worthless decisions find {100 * wrong:.0f} % agreement"
        findings.append(
            Finding(kind="collusion", role="", evidence=f"{names} accept what breaks their own limits{seen}")
        )
    return findings


def bounds(count: Count) -> tuple[float, float]:
    """95 % interval of a rate (Wilson); (0, 1) where nothing was counted."""
    if count.n == 0:
        return 0.0, 1.0
    found = stats.binomtest(count.hits, count.n).proportion_ci(confidence_level=0.95, method="wilson")
    return float(found.low), float(found.high)


def _too_few_offers(probe: RoleProbe) -> Finding | None:
    """A free rider offers next to nothing, a hoarder leaves out much of what would gain."""
    if probe.offered.n < MIN_CASES or bounds(probe.offered)[1] >= HOARDER_SHARE:
        return None
    kind = "free_rider" if bounds(probe.offered)[1] < FREE_RIDER_SHARE else "hoarder"
    evidence = f"offers stand on {_said(probe.offered)} options on which it could gain something"
    return Finding(kind=kind, role=probe.role, evidence=evidence)


def _false_claims(probe: RoleProbe) -> Finding | None:
    if probe.false_claims.n < MIN_CASES or bounds(probe.false_claims)[0] <= FALSE_SHARE:
        return None
    evidence = f"{_said(probe.false_claims)} claims are struck out as false"
    return Finding(kind="false_claims", role=probe.role, evidence=evidence)


def _silent(probe: RoleProbe) -> Finding | None:
    if probe.limits_named.n < MIN_CASES or bounds(probe.limits_named)[1] >= SILENT_SHARE:
        return None
    evidence = f"{_said(probe.limits_named)} options that hang on its hard limit are named"
    return Finding(kind="silent_on_limits", role=probe.role, evidence=evidence)


def _ignored(probe: RoleProbe) -> Finding | None:
    if probe.used.n < MIN_CASES or bounds(probe.used)[1] >= IGNORED_SHARE:
        return None
    evidence = f"{_said(probe.used)} decisions that should pay its part do so"
    return Finding(kind="ignored", role=probe.role, evidence=evidence)


def _yes_sayer(probe: RoleProbe) -> Finding | None:
    if probe.accepts_broken.n < MIN_CASES or bounds(probe.accepts_broken)[0] <= YES_SHARE:
        return None
    evidence = f"{_said(probe.accepts_broken)} decisions under its own hard limit are accepted"
    return Finding(kind="yes_sayer", role=probe.role, evidence=evidence)


def _objector(probe: RoleProbe) -> Finding | None:
    if probe.objects_sound.n < MIN_CASES or bounds(probe.objects_sound)[0] <= OBJECTOR_SHARE:
        return None
    evidence = f"{_said(probe.objects_sound)} sound decisions are objected to"
    return Finding(kind="objector", role=probe.role, evidence=evidence)


def _said(count: Count) -> str:
    return f"{count.hits} of {count.n}"
