"""Findings about a team from its probes, each with the numbers behind it; a healthy team has none.

A finding needs the whole 95 % interval of its rate beyond the limit, so that chance alone rarely raises one.
"""

from dataclasses import dataclass

from scipy import stats

from evaluation.probes.diagnostics import Count, RoleProbe, TeamProbe
from evaluation.summary.run_table import role_title

FREE_RIDER_ROOM = 0.25  # share of the room over a blind pick that a role at work takes at least
SILENT_SHARE = 0.25  # of its own hard limits
IGNORED_SHARE = 0.25  # of what a sound chair would hear
YES_SHARE = 0.25  # of decisions under its own limit
OBJECTOR_SHARE = 0.25  # of sound decisions
MIN_CASES = 10  # occasions from which a check says anything
OCCASIONS = {
    "free_rider": ("own_pick", "n"),
    "silent_on_limits": ("limits_named", "n"),
    "ignored": ("hearable", "hits"),
    "yes_sayer": ("accepts_broken", "n"),
    "objector": ("objects_sound", "n"),
}  # where a role's probe counts the occasions of each check


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a team.

    Example: Finding(kind="free_rider", role="cto", evidence="picks its own best in 31 of 100 cases, ...")
    """

    kind: str  # free_rider, silent_on_limits, ignored, yes_sayer, objector, collusion
    role: str  # "" for the whole team
    evidence: str


def find_faults(probe: TeamProbe) -> list[Finding]:
    """Return all findings, role by role, then of the team."""
    findings = []
    for role in probe.roles.values():
        for check in (_free_rider, _silent, _ignored, _yes_sayer, _objector):
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


def _free_rider(probe: RoleProbe) -> Finding | None:
    limit = probe.chance + FREE_RIDER_ROOM * (1 - probe.chance)
    if probe.own_pick.n < MIN_CASES or bounds(probe.own_pick)[1] >= limit:
        return None
    evidence = (
        f"{_said(probe.own_pick)} reports pick its own best option; a blind pick would hit {probe.chance:.2f}"
    )
    return Finding(kind="free_rider", role=probe.role, evidence=evidence)


def _silent(probe: RoleProbe) -> Finding | None:
    if probe.limits_named.n < MIN_CASES or bounds(probe.limits_named)[1] >= SILENT_SHARE:
        return None
    evidence = f"{_said(probe.limits_named)} options under its own hard limit are vetoed"
    return Finding(kind="silent_on_limits", role=probe.role, evidence=evidence)


def _ignored(probe: RoleProbe) -> Finding | None:
    """Far fewer decisions follow its altered reports than a sound chair's would."""
    if probe.hearable.hits < MIN_CASES:
        return None  # even a sound chair would hardly ever hear it: nothing can be said
    expected = probe.hearable.hits / probe.hearable.n
    if (
        bounds(probe.heard)[1] >= IGNORED_SHARE * expected + 0.02
        or probe.heard.hits / probe.heard.n >= expected / 4
    ):
        return None
    sound = f"of a sound chair's, {_said(probe.hearable)} would"
    evidence = f"{_said(probe.heard)} decisions follow its altered report; {sound}"
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
