"""All tables of one run, from its summary, details and diagnostics; every output shows these."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evaluation.probes.diagnostics import CHECKS, MIN_CASES
from evaluation.scoring.outcomes import TEAM
from evaluation.summary.run_summary import is_on_front
from evaluation.summary.tables import (
    BASELINE_TITLES,
    STAGE_TITLES,
    TEAM_TITLES,
    TRAINED_TITLES,
    PlainTable,
    change_cell,
    comparison_title,
    interval_cell,
    list_stages,
    p_cell,
    percent,
    role_title,
    score_cell,
    short,
    stage_title,
    team_title,
    trained_stages,
)

Tree = Mapping[str, Any]
Write = Callable[[Tree, str], str]  # section, stage -> cell
GATE_VERDICTS = {True: "pass", False: "FAIL", None: "not judged"}
PART_TITLES = {
    "value": "value V",
    "consensus": "agreement C",
    "unresolved": "unresolved U",
    "escalation": "escalation H",
    "agreement": "votes to accept",
    "agreement_when_wrong": "accept worthless",
}  # of the team reward
CLAIM = (
    "* claimed: interval apart from 0, p < .05 after Holm's correction, and no smaller than what so many"
    " cases show in 80 % of runs"
)


def way_of_play(summary: Tree) -> str:
    """Return how the judged plays were sampled, as in "at temperature 1"."""
    return f"at temperature {summary.get('temperature', 1.0):g}"


def summary_tables(summary: Tree) -> list[PlainTable]:
    """Everything that a summary says: roles, team, joint training, gates."""
    return [*role_tables(summary), *team_tables(summary), gate_table(summary["gates"])]


def role_tables(summary: Tree) -> list[PlainTable]:
    """Roles x stages: scores beside the baselines, exact and feasible answers; then changes x roles."""
    roles = summary["roles"]
    n = min((least_n(section) for section in roles.values()), default=0)
    names = dict.fromkeys(name for section in roles.values() for name in section.get("paired", {}))

    def score(section: Tree, stage: str) -> str:
        row = section.get(stage)
        return short(row["mean"]) if row and stage in BASELINE_TITLES else score_cell(row)

    def exact(section: Tree, stage: str) -> str:
        if (row := section.get(stage)) is None:
            return "-"
        greedy = "" if row["exact_greedy"] is None else f" ({short(row['exact_greedy'])})"
        return f"{short(row['exact'])}{greedy} / {short(row['feasible'])}"

    def by_role(title: str, stages: Sequence[str], write: Write, what: str) -> PlainTable:
        rows = [(role_title(one), *(write(roles[one], stage) for stage in stages)) for one in roles]
        return PlainTable(title, ("role", *map(stage_title, stages)), rows, what)

    return [
        by_role(
            f"Roles alone: reward by the verifier, 0 to 1 ({n} scenarios)",
            list_stages(roles.values(), STAGE_TITLES),
            score,
            f"mean {way_of_play(summary)} [95 % bootstrap interval] (greedy); random: a random legal answer,"
            " constant: always the same, heuristic: a simple rule that reads the case, oracle: the optimum",
        ),
        by_role(
            "Roles alone: optimal and feasible answers",
            trained_stages(roles.values()),
            exact,
            "share of answers that are the exact optimum (the same, greedy) / that keep every limit",
        ),
        PlainTable(
            "Changes of the roles",
            ("paired change", *map(role_title, roles)),
            [
                (comparison_title(name), *(change_cell(one["paired"].get(name)) for one in roles.values()))
                for name in names
            ],
            f"on the same scenarios, Holm over the roles; {CLAIM}",
        ),
    ]


def least_n(section: Tree) -> int:
    """Return the smallest number of scenarios of any stage; 0 for none."""
    return min((row["n"] for stage, row in section.items() if stage != "paired"), default=0)


def gate_table(gates: Sequence[Tree]) -> PlainTable:
    """Gates with pass or FAIL and the numbers behind each."""
    rows = [(gate["name"], GATE_VERDICTS[gate["passed"]], gate["detail"]) for gate in gates]
    return PlainTable("Gates", ("gate", "result", "numbers"), rows, num_names=3)


def team_tables(summary: Tree) -> list[PlainTable]:
    """Team rewards with their parts, then joint training: changes, gap, hidden profiles, tries, validation.

    What the summary lacks has no table.
    """
    team, joint = summary["team"], summary.get("joint", {})
    hidden = joint.get("hidden", {})
    passes = joint.get("passes", {})
    num_tries = max((len(one["chances"]) for one in passes.values()), default=0)
    solved = hidden.get("stages", {})
    tables = [
        PlainTable(
            f"Whole team: team reward R and its parts ({least_n(team)} scenarios)",
            ("team", "team reward R", *PART_TITLES.values()),
            [
                (team_title(one), score_cell(team[one]), *map(short, map(team[one].get, PART_TITLES)))
                for one in list_stages([team], TEAM_TITLES)
            ],
            "R: mean [95 % interval] (greedy); C: share of right votes; U: hard limits it breaks;"
            " H: needless or missed hand-over to a human; last: votes to accept a worthless decision",
        ),
        PlainTable(
            "Changes of the team",
            ("paired change", "team reward", "p", "detectable"),
            [
                (comparison_title(name), change_cell(one), p_cell(one["p"]), _detectable(one))
                for name, one in team.get("paired", {}).items()
            ],
            "team reward on the same cases; p by permutation, Holm-adjusted over these rows; detectable: the"
            f" smallest change that so many cases show in 80 % of runs; {CLAIM}",
        ),
        PlainTable(
            "Gap to the best policy without seeing each other that joint training closes",
            ("play", "GRPO team", "after joint training", "searched policy", "closed"),
            [
                (
                    way,
                    *(short(one[key]) for key in ("before", "after", "ceiling")),
                    f"{percent(one['mean'])} [{percent(one['low'])}, {percent(one['high'])}]",
                )
                for way, one in joint.get("gap", {}).items()
            ],
            "searched policy: experts who offer by it, funded exactly; [95 % interval]",
        ),
        PlainTable(
            f"Hidden profiles: {hidden.get('n', 0)} cases, {percent(hidden.get('share', 0.0))} of all",
            ("team", "solved", "V"),
            [
                (team_title(stage), percent(solved[stage]["solved"]), short(solved[stage]["value"]))
                for stage in list_stages([solved], TEAM_TITLES)
            ],
            "neither the public facts nor any single seat names the best option; solved: it was decided",
        ),
        PlainTable(
            "Changes on hidden profiles",
            ("paired change", "solved", "p", "V", "p", "detectable"),
            [
                (
                    comparison_title(name),
                    f"{100 * one['solved']:+.0f} points",
                    p_cell(one["p_solved"]),
                    change_cell(one),
                    p_cell(one["p"]),
                    _detectable(one),
                )
                for name, one in hidden.get("paired", {}).items()
            ],
            "p of solved by McNemar, of V by permutation, each Holm-adjusted over these rows",
        ),
        PlainTable(
            f"Several sampled tries ({min((one['n'] for one in passes.values()), default=0)} cases)",
            ("team", "mean V", *(f"pass^{k}" for k in range(1, num_tries + 1))),
            [
                (team_title(stage), short(one["mean_value"]), *map(short, one["chances"]))
                for stage, one in passes.items()
            ],
            "pass^k: chance that k tries at a case all reach V of .9 or more",
        ),
        PlainTable(
            "Joint training: best and last validation",
            ("validation", "step", "team reward", "below the best"),
            list(_validation_rows(joint.get("validation", {}))),
            "cases of the validation split; the best one is chosen on them: it looks a little too good",
        ),
        PlainTable(
            "Joint training: gradient mass",
            ("role", "share"),
            [(role_title(role), percent(share)) for role, share in joint.get("gradient_mass", {}).items()],
            "share of the squared gradient norms before clipping, mean over steps",
        ),
    ]
    return [table for table in tables if table.rows]


def _detectable(change: Tree) -> str:
    found = change.get("detectable")
    return "-" if found is None else f"{found:.3f}".removeprefix("0")


def _validation_rows(validation: Tree) -> list[tuple[str, ...]]:
    if not validation:
        return []
    error = validation["fall_error"]
    fall = short(validation["fall"]) + ("" if error is None else f" (SE {short(error)})")
    return [
        ("best, kept", str(validation["peak_step"]), short(validation["peak"]), ""),
        ("last", str(validation["last_step"]), short(validation["last"]), fall),
    ]


def run_table(names: Sequence[str], summaries: Sequence[Tree]) -> PlainTable:
    """A row per run or seed: what joint training did, its gates, its time."""
    rows = []
    for name, one in zip(names, summaries, strict=True):
        team, joint, gates = one["team"], one.get("joint", {}), one["gates"]
        gap, validation = joint.get("gap", {}).get("sampled"), joint.get("validation", {})
        hidden = [joint.get("hidden", {}).get("stages", {}).get(stage) for stage in ("grpo", "marl")]
        row = (
            name,
            str(one["seed"]),
            " to ".join(short(team.get(stage, {}).get("mean")) for stage in ("grpo", "marl")),
            change_cell(team.get("paired", {}).get("marl-grpo")),
            percent(gap["mean"]) if gap else "-",
            " to ".join(percent(stage["solved"]) if stage else "-" for stage in hidden),
            f"{short(validation.get('peak'))}, {short(validation.get('last'))}",
            f"{sum(gate['passed'] is True for gate in gates)} of {len(gates)}",
            ", ".join(gate["name"] for gate in gates if gate["passed"] is False) or "none",
            f"{one['wall_s'] / 60:.1f} min",
        )
        rows.append(row)
    titles = ("run", "seed", "team reward", "change", "gap closed", "hidden solved", "validation: best, last")
    caption = "team: before and after joint training, sampled plays on sealed cases"
    return PlainTable("Runs", (*titles, "gates passed", "red", "wall time"), rows, caption)


PROCESS = (
    ("turns", "turns", "{:.1f}"),
    ("tokens", "tokens", "{:.0f}"),
    ("tool_calls", "tool calls", "{:.1f}"),
    ("failed_calls", "failed", "{:.2f}"),
    ("well_formed", "well formed", "{:.3f}"),
    ("truncated", "cut off", "{:.3f}"),
    ("escalated", "escalated", "{:.3f}"),
    ("exact", "exact", "{:.3f}"),
)
MOST_FAULTS = 3  # kinds that a row names


def detail_tables(details: Tree) -> list[PlainTable]:
    """Plays: what they took, how they fell short, offers, difficulty, sector; none without details."""
    stages = trained_stages([section for owner, section in details.items() if owner != TEAM])
    if not stages:
        return []
    newest = stages[-1]
    return [
        _process_table(details),
        _words_table(details),
        _offer_table(details, newest),
        *(_category_table(details, category, newest) for category in ("difficulty", "sector")),
    ]


def list_sampled(details: Tree) -> dict[tuple[str, str], Tree]:
    """(owner, stage) -> its sampled section, in training order."""
    return {
        (owner, stage): section[stage]["sampled"]
        for owner, section in details.items()
        for stage in list_stages([section], TRAINED_TITLES)
    }


def list_teams(details: Tree) -> dict[str, Tree]:
    """Stage -> means per sampled play of the team, as `details.process` has them."""
    return {stage: one["process"] for (owner, stage), one in list_sampled(details).items() if owner == TEAM}


def _process_table(details: Tree) -> PlainTable:
    """Means per play, by owner and stage."""
    rows = []
    for (owner, stage), sampled in list_sampled(details).items():
        numbers, n = sampled["process"], sampled["process"]["n"]
        cells = [form.format(numbers[key]) if key in numbers else "-" for key, _, form in PROCESS]
        faults = ", ".join(
            f"{kind.replace('_', ' ')} {percent(count / n)}"
            for kind, count in list(sampled["failures"].items())[:MOST_FAULTS]
        )
        rows.append((role_title(owner), stage_title(stage), *cells, f"{n:.0f}", faults))
    return PlainTable(
        "Sampled plays: means per play",
        ("who", "stage", *(title for _, title, _ in PROCESS), "n", "what went wrong, share of plays"),
        rows,
        "well formed, cut off, escalated and exact (the optimum) are shares",
        num_names=2,
    )


def _words_table(details: Tree) -> PlainTable:
    """Every team's reward beside its contexts and tokens."""
    found = list_teams(details)
    return PlainTable(
        "Team reward and the words that it takes",
        ("team", "team reward R", "largest context", "tokens in sequence", "tokens of all", "on the front"),
        [
            (
                team_title(stage),
                short(one["reward"]),
                *(f"{one[name]:.0f}" for name in ("context", "sequential", "tokens")),
                "yes" if is_on_front(one, found.values()) else "no",
            )
            for stage, one in found.items()
        ],
        "sampled plays; largest context: of one agent, in tokens; in sequence: reports side by side, then"
        " ReconcileGPT, then votes side by side; on the front: no other team earns as much with as few words",
    )


def _category_table(details: Tree, category: str, stage: str) -> PlainTable:
    """Reward by sector or difficulty, one stage, by owner."""
    sections = {
        owner: section[stage]["sampled"][category] for owner, section in details.items() if stage in section
    }
    values = {value for rows in sections.values() for value in rows}
    rows = [
        (value, *(interval_cell(rows.get(value)) for rows in sections.values()))
        for value in sorted(values, key=lambda value: (value.zfill(2), value))
    ]
    return PlainTable(
        f"Reward by {category}, {stage_title(stage)}",
        (category, *map(role_title, sections)),
        rows,
        "mean [95 % interval], sampled plays",
    )


def _offer_table(details: Tree, stage: str) -> PlainTable:
    """Return what every seat offers in the sampled episodes of a stage, and how often it is funded."""
    section = details.get(TEAM, {}).get(stage, {}).get("sampled", {})
    return PlainTable(
        "Offers, seat by seat",
        ("seat", "reports read", "offers per report", "false claims per report", "plans that fund it"),
        [
            (
                role_title(seat),
                short(row["read"]),
                f"{row['offers']:.2f}",
                f"{row['false_claims']:.2f}",
                short(row["funded"]),
            )
            for seat, row in section.get("offers", {}).items()
        ],
        f"sampled episodes, {stage_title(stage)}; reports read and plans that fund it: shares",
    )


FINDING_TITLES = {
    "free_rider": "free rider: hardly any offer of it stands",
    "hoarder": "keeps worthwhile parts to itself",
    "false_claims": "states false figures or limits",
    "silent_on_limits": "does not name its own hard limits",
    "ignored": "ReconcileGPT ignores its offers",
    "yes_sayer": "accepts what breaks its own hard limit",
    "objector": "objects to sound decisions",
    "collusion": "the team agrees on bad decisions",
}
ROLE_PROBES = {
    "offered": "offers made",
    "efficient": "efficient",
    "false_claims": "false claims",
    "limits_named": "names own limits",
    "marginal_value": "marginal value",
    "used": "offers used",
    "accepts_broken": "accepts broken limit",
    "objects_sound": "objects to sound",
}


def diagnostic_tables(diagnostics: Tree) -> list[PlainTable]:
    """Roles, swaps, substitutes and findings of `emads diagnose`; none without diagnostics."""
    if not diagnostics:
        return []
    n, swaps, substitutes = diagnostics["n"], diagnostics["swaps"], diagnostics["substitutes"]
    seats = list(dict.fromkeys(role for cells in substitutes.values() for role in cells))

    def write(probe: Tree, field: str) -> str:
        found = probe[field]
        if field == "marginal_value":
            return change_cell(found)
        return f"{short(found['hits'] / found['n'])} of {found['n']}" if found["n"] else "-"

    return [
        PlainTable(
            f"{diagnostics['stage']} team, role by role ({n} cases, greedy)",
            ("role", *ROLE_PROBES.values()),
            [
                (role_title(role), *(write(probe, field) for field in ROLE_PROBES))
                for role, probe in diagnostics["probe"]["roles"].items()
            ],
            "marginal value: what the decision's value falls by without the report;\n"
            "offers made: share of the options on which it could gain something;\n"
            "offers used: share of the decisions that should pay its part",
        ),
        PlainTable(
            f"Team reward, greedy, {n} cases: specialists of the row, ReconcileGPT of the column",
            ("specialists", *swaps),
            [(row, *(interval_cell(cells[column]) for column in swaps)) for row, cells in swaps.items()],
            "mean [95 % interval]",
        ),
        PlainTable(
            f"Change of the team reward when another player takes one seat ({n} cases)",
            ("player", *map(role_title, seats)),
            [
                (stage_title(name), *(change_cell(cells.get(role)) for role in seats))
                for name, cells in substitutes.items()
            ],
            "mean [95 % interval], * apart from 0",
        ),
        PlainTable("Findings", ("finding", "who", "numbers"), list(finding_rows(diagnostics))),
    ]


def finding_rows(diagnostics: Tree) -> list[tuple[str, str, str]]:
    """(finding, who, numbers): what was found, then what there were too few cases to find."""
    rows = [
        (FINDING_TITLES[one["kind"]], role_title(one["role"] or TEAM), one["evidence"])
        for one in diagnostics["findings"]
    ]
    unchecked = []
    for kind, (field, *_) in CHECKS.items():
        counts = {role: probe[field]["n"] for role, probe in diagnostics["probe"]["roles"].items()}
        few = {role: count for role, count in counts.items() if count < MIN_CASES}
        if not few:
            continue
        least = min(few.values())
        needed = f"about {-(-diagnostics['n'] * MIN_CASES // least)}" if least else "many more"
        said = f"{least} of {MIN_CASES} occasions in {diagnostics['n']} cases; {needed} cases are needed"
        who = ", ".join(map(role_title, few))
        unchecked.append((f"too few cases to tell: {FINDING_TITLES[kind]}", who, said))
    if not rows:
        what = "none in what could be checked" if unchecked else "none"
        rows.append((what, "-", f"{diagnostics['n']} cases"))
    return rows + unchecked
