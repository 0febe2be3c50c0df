"""The probes in order, how much each tier does, and the table that an audit prints."""

from collections.abc import Callable, Mapping, Sequence

from evaluation.audit.cases import CaseSample
from evaluation.audit.probes.blind import probe_blind
from evaluation.audit.probes.hack_matrix import probe_hacks
from evaluation.audit.probes.hostile_outputs import probe_hostile_outputs
from evaluation.audit.probes.optimum import probe_optimum
from evaluation.audit.probes.rewrites import probe_rewrites
from evaluation.audit.probes.search import probe_search
from evaluation.audit.records import Row, Subject, Tier
from evaluation.audit.registry import SUBJECTS
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
COLUMNS = ("probe", "family", "counts", "worst figure", "result")
MOST_SHOWN = 5  # breaches of a row that are shown


def choose_tier(name: str) -> Tier:
    """The tier of that name.

    Raises:
        UserError: unknown tier.
    """
    if name not in TIERS:
        raise unknown("tier", name, list(TIERS))
    return TIERS[name]


def choose_subjects(names: Sequence[str]) -> list[Subject]:
    """The verifiers of these families, all for none.

    Raises:
        UserError: unknown family.
    """
    families = list(dict.fromkeys(name.split("-")[0] for name in SUBJECTS))
    for name in names:
        if name not in families:
            raise unknown("family", name, families)
    return [subject for name, subject in SUBJECTS.items() if not names or name.split("-")[0] in names]


def render_heading() -> str:
    """The head of the table, in Markdown."""
    return f"{render_cells(COLUMNS)}\n{render_cells(['---'] * len(COLUMNS))}"


def render_row(row: Row) -> str:
    """One line of the table."""
    result = "pass" if not row.breaches else f"BREACH ({len(row.breaches)})"
    return render_cells((row.probe, row.family, row.counts, row.worst, result))


def render_cells(cells: Sequence[str]) -> str:
    """Cells between bars."""
    return f"| {' | '.join(cells)} |"


def render_breaches(rows: Sequence[Row]) -> list[str]:
    """The first breaches of every row, a line each, on one line even where they quote other lines."""
    lines = []
    for row in rows:
        shown = [" ".join(breach.split()) for breach in row.breaches[:MOST_SHOWN]]
        lines += [f"{row.probe} {row.family}: {breach}" for breach in shown]
        if len(row.breaches) > MOST_SHOWN:
            lines.append(f"{row.probe} {row.family}: and {len(row.breaches) - MOST_SHOWN} more")
    return lines
