"""All tables of one run, from its summary, details and diagnostics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from evaluation.probes.diagnostics import MIN_CASES, OCCASIONS
from evaluation.stats.effects import is_claimed
from evaluation.summary.tables import (
    BASELINE_TITLES,
    STAGE_TITLES,
    TEAM,
    TEAM_TITLES,
    TRAINED_TITLES,
    PlainTable,
    change_cell,
    comparison_title,
    for_terminal,
    interval_cell,
    list_stages,
    p_cell,
    percent,
    role_title,
    score_cell,
    short,
    short_change,
    stage_title,
    trained_stages,
    write_markdown,
)

Tree = Mapping[str, Any]
GATE_VERDICTS = {True: "[green]pass[/green]", False: "[bold red]FAIL[/bold red]", None: "not judged"}
PART_TITLES = {
    "value": "value V",
    "consensus": "agreement C",
    "unresolved": "unresolved U",
    "escalation": "escalation H",
    "agreement": "votes to accept",
    "agreement_when_wrong": "accept worthless",
}  # of the team reward


def way_of_play(summary: Tree) -> str:
    """Return how the judged plays were sampled, as in "at temperature 1"."""
    return f"at temperature {summary.get('temperature', 1.0):g}"


def role_table(summary: Tree) -> PlainTable:
    """Roles x training stages, the heuristic before them."""
    return _by_role(
        summary,
        ["heuristic", *trained_stages(summary["roles"].values())],
        _stacked_cell,
        f"Roles alone: reward by the verifier, 0 to 1 ({_count(summary['roles'].values())})",
        f"mean [95 % interval] {way_of_play(summary)}, below it (greedy decoding),\n"
        "below it the change from the stage before on the same scenarios, * where it may be claimed:\n"
        "interval apart from 0, p < .05 after Holm, no smaller than what so many scenarios show",
    )


def score_table(summary: Tree) -> PlainTable:
    """Roles x training stages: the scores alone."""
    stages = trained_stages(summary["roles"].values())
    title = "Verified reward, mean [95 % interval] (greedy)"
    return _by_role(summary, stages, lambda section, stage: score_cell(section.get(stage)), title)


def baseline_table(summary: Tree) -> PlainTable:
    """Roles x baselines: what blind, constant and heuristic answers earn, and the oracle."""
    return _by_role(
        summary,
        list(BASELINE_TITLES),
        lambda section, stage: interval_cell(section.get(stage)),
        "Roles alone: untrained players on the same scenarios",
        "mean [95 % interval]; random: a random legal answer, constant: always the same,\n"
        "heuristic: a simple rule that reads the case, oracle: the exact optimum",
    )


def exact_table(summary: Tree) -> PlainTable:
    """Roles x training stages: share of exactly optimal and of feasible answers."""
    return _by_role(
        summary,
        trained_stages(summary["roles"].values()),
        lambda section, stage: _exact_cell(section.get(stage)),
        "Roles alone: optimal and feasible answers",
        "share of answers that are the exact optimum (the same, greedy) / that keep every limit",
    )


def _by_role(
    summary: Tree, stages: Sequence[str], write: Callable[[Tree, str], str], title: str, caption: str = ""
) -> PlainTable:
    rows = (
        (role_title(role), *(write(section, stage) for stage in stages))
        for role, section in summary["roles"].items()
    )
    titles = ("role", *map(stage_title, stages))
    return PlainTable(title, titles, list(rows), caption)


def _stacked_cell(section: Tree, stage: str) -> str:
    if stage not in section:
        return "-"
    row = section[stage]
    greedy = "" if row["greedy"] is None else f"\n({short(row['greedy'])})"
    before = {"untrained": "", "sft": "untrained", "sft_more": "sft", "sft_own": "sft", "grpo": "sft"}
    change = section.get("paired", {}).get(f"{stage}-{before.get(stage, 'grpo')}")
    star = "*" if change and is_claimed(change) else ""
    return interval_cell(row) + greedy + (f"\n{short_change(change['mean'])}{star}" if change else "")


def _exact_cell(stage: Tree | None) -> str:
    if stage is None:
        return "-"
    greedy = "" if stage["exact_greedy"] is None else f" ({short(stage['exact_greedy'])})"
    return f"{short(stage['exact'])}{greedy} / {short(stage['feasible'])}"


def least_n(section: Tree) -> int:
    """Return the smallest number of scenarios of any stage; 0 for none."""
    return min((row["n"] for stage, row in section.items() if stage != "paired"), default=0)


def _count(sections: Iterable[Tree]) -> str:
    n = min((least_n(section) for section in sections), default=0)
    return f"{n} scenario{'' if n == 1 else 's'}"


def role_change_table(summary: Tree) -> PlainTable:
    """Paired changes x roles, each with its p."""
    sections = summary["roles"]

    def write(change: Mapping[str, float] | None) -> str:
        p = f"\np {p_cell(change['p'])}" if change is not None and "p" in change else ""
        return change_cell(change) + p

    rows = (
        (comparison_title(name), *(write(section["paired"].get(name)) for section in sections.values()))
        for name in _change_names(sections)
    )
    return PlainTable(
        "Paired changes (* apart from 0, p by permutation, Holm-adjusted over roles)",
        ("paired change", *map(role_title, sections)),
        list(rows),
    )


def _change_names(roles: Mapping[str, Tree]) -> list[str]:
    return list(dict.fromkeys(name for section in roles.values() for name in section.get("paired", {})))


def team_rows(team: Tree) -> list[tuple[str, Mapping[str, Any]]]:
    """Team stages, baselines first, controls last."""
    return [(stage, team[stage]) for stage in list_stages([team], TEAM_TITLES)]


def team_title(stage: str) -> str:
    """Return a stage of the team as people say it."""
    return TEAM_TITLES.get(stage, stage)


def team_table(summary: Tree) -> PlainTable:
    """Team stages and baselines with the parts of the team reward."""
    return PlainTable(
        f"Whole team: team reward R and its parts ({_count([summary['team']])})",
        ("team", "team reward R", *PART_TITLES.values()),
        [
            (team_title(stage), score_cell(row), *(short(row.get(part)) for part in PART_TITLES))
            for stage, row in team_rows(summary["team"])
        ],
        "R: mean [95 % interval] (greedy); C: share of right votes; U: hard limits it breaks;\n"
        "H: needless or missed hand-over to a human; last: votes to accept a worthless decision",
    )


def gate_table(gates: Sequence[Tree]) -> Table:
    """Gates with pass or FAIL and the numbers behind each."""
    table = Table(title="Gates", box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("gate")
    table.add_column("result")
    table.add_column("numbers", overflow="fold")
    for gate in gates:
        table.add_row(gate["name"], GATE_VERDICTS[gate["passed"]], gate["detail"].replace("[", "\\["))
    return table


def summary_tables(summary: Tree) -> list[Table]:
    """Roles, team, joint training and gates, for a terminal."""
    tables = [make(summary) for make in (role_table, exact_table, baseline_table, team_table)]
    return [*map(for_terminal, [*tables, *joint_tables(summary)]), gate_table(summary["gates"])]


def markdown(summary: Tree) -> str:
    """Tables of roles and of the team's stages as GitHub Markdown, with a line on how to read them."""
    roles: Mapping[str, Any] = summary["roles"]

    def write(section: Tree, stage: str) -> str:
        row = section.get(stage)
        return short(row["mean"]) if row and stage in BASELINE_TITLES else score_cell(row)

    names = _change_names(roles)
    changes = PlainTable(
        "",
        ("paired change", *map(comparison_title, names)),
        [
            (role_title(role), *(change_cell(section.get("paired", {}).get(name)) for name in names))
            for role, section in roles.items()
        ],
    )
    parts = [part.replace("_", " ") for part in PART_TITLES]
    team = PlainTable("", ("team", "reward", *parts), team_table(summary).rows)
    blocks = (
        write_markdown(_by_role(summary, list_stages(roles.values(), STAGE_TITLES), write, "")),
        write_markdown(changes),
        write_markdown(team),
        f"Mean verified reward {way_of_play(summary)} [95 % bootstrap interval] (greedy). Changes are paired "
        "on the same scenarios; * where one may be claimed: interval apart from 0, p < .05 after Holm's "
        "correction, no smaller than what so many scenarios show in 80 % of runs.",
    )
    return "\n\n".join(blocks) + "\n"


CHANGE_CAPTION = (
    "team reward on the same cases; p by permutation, Holm-adjusted over these rows; detectable: the smallest"
    " change that so many cases show in 80 % of runs; * claimed: interval apart from 0, p < .05, no smaller"
    " than detectable"
)


def joint_tables(summary: Tree) -> list[PlainTable]:
    """Joint training: changes, gap to the best, hidden profiles, tries; none of what the summary lacks."""
    joint = summary.get("joint", {})
    hidden = joint.get("hidden", {})
    passes = joint.get("passes", {})
    num_tries = max((len(one["chances"]) for one in passes.values()), default=0)
    solved = hidden.get("stages", {})
    tables = [
        PlainTable(
            "Changes of the team",
            ("paired change", "team reward", "p", "detectable"),
            [
                (comparison_title(name), change_cell(one), p_cell(one["p"]), _detectable(one))
                for name, one in summary["team"].get("paired", {}).items()
            ],
            CHANGE_CAPTION,
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


def seeds_joint_table(summaries: Sequence[Tree]) -> PlainTable:
    """Joint training seed by seed: team reward, share of the gap closed, hidden profiles, best and last."""
    return PlainTable(
        "Joint training by seed",
        ("seed", "team reward", "gap closed", "hidden solved", "hidden V", "best validation", "last"),
        [_seed_row(one) for one in summaries if one.get("joint")],
        "before and after joint training; all plays are sampled",
    )


def _seed_row(summary: Tree) -> tuple[str, ...]:
    joint, team = summary["joint"], summary["team"]
    gap, validation = joint.get("gap", {}).get("sampled"), joint.get("validation", {})
    hidden = joint.get("hidden", {}).get("stages", {})
    before, after = (hidden.get(stage, {}) for stage in ("grpo", "marl"))
    return (
        str(summary["seed"]),
        " to ".join(short(team.get(stage, {}).get("mean")) for stage in ("grpo", "marl")),
        percent(gap["mean"]) if gap else "-",
        f"{percent(before['solved'])} to {percent(after['solved'])}" if before and after else "-",
        f"{short(before['value'])} to {short(after['value'])}" if before and after else "-",
        short(validation.get("peak")),
        short(validation.get("last")),
    )


PROCESS = (
    ("turns", "turns", "{:.1f}"),
    ("tokens", "tokens", "{:.0f}"),
    ("tool_calls", "tool calls", "{:.1f}"),
    ("failed_calls", "failed", "{:.2f}"),
    ("well_formed", "well formed", "{:.3f}"),
    ("truncated", "cut off", "{:.3f}"),
    ("escalated", "escalated", "{:.3f}"),
)


def detail_tables(details: Tree) -> list[PlainTable]:
    """Process and difficulty tables; none for a run without details."""
    return [process_table(details), _difficulty_table(details)] if details else []


def list_sampled(details: Tree) -> dict[tuple[str, str], Mapping[str, Any]]:
    """(owner, stage) -> its sampled section, in training order."""
    return {
        (owner, stage): section[stage]["sampled"]
        for owner, section in details.items()
        for stage in list_stages([section], TRAINED_TITLES)
    }


def process_table(details: Tree) -> PlainTable:
    """Means per play, by owner and stage."""
    rows = []
    for (owner, stage), sampled in list_sampled(details).items():
        numbers = sampled["process"]
        cells = [form.format(numbers[key]) if key in numbers else "-" for key, _, form in PROCESS]
        faults = ", ".join(f"{kind} {count}" for kind, count in list(sampled["failures"].items())[:3])
        rows.append((role_title(owner), stage_title(stage), *cells, f"{numbers['n']:.0f}", faults))
    return PlainTable(
        "Sampled plays: means per play",
        ("who", "stage", *(title for _, title, _ in PROCESS), "n", "most frequent faults"),
        list(rows),
        "well formed, cut off and escalated are shares",
        num_names=2,
    )


def _difficulty_table(details: Tree) -> PlainTable:
    by_stage = {who: sampled["difficulty"] for who, sampled in list_sampled(details).items()}
    values = sorted({value for row in by_stage.values() for value in row}, key=lambda one: (len(one), one))
    rows = (
        (role_title(owner), stage_title(stage), *(interval_cell(row.get(value)) for value in values))
        for (owner, stage), row in by_stage.items()
    )
    return PlainTable(
        "Reward by difficulty", ("who", "stage", *values), list(rows), "mean [95 % interval]", num_names=2
    )


def category_table(details: Tree, category: str, stage: str) -> PlainTable:
    """Reward by sector or difficulty, one stage, by owner."""
    sections = {
        owner: section[stage]["sampled"][category] for owner, section in details.items() if stage in section
    }
    rows = (
        (value, *(interval_cell(rows.get(value)) for rows in sections.values()))
        for value in sorted({value for rows in sections.values() for value in rows})
    )
    titles = (category, *map(role_title, sections))
    return PlainTable(f"Reward by {category}, {stage_title(stage)}", titles, list(rows))


def offer_table(details: Tree, stage: str) -> PlainTable:
    """Return what every seat offers in the sampled episodes of a stage, and how often it is funded."""
    section = details.get(TEAM, {}).get(stage, {}).get("sampled", {})
    rows = tuple(
        (
            role_title(seat),
            short(row["read"]),
            f"{row['offers']:.2f}",
            f"{row['false_claims']:.2f}",
            short(row["funded"]),
        )
        for seat, row in section.get("offers", {}).items()
    )
    titles = ("seat", "reports read", "offers per report", "false claims per report", "plans that fund it")
    title = "Offers, seat by seat (reports read and plans that fund it: shares)"
    return PlainTable(title, titles, rows)


def fault_table(details: Tree, stages: Sequence[str]) -> PlainTable:
    """Tabulate the failures of plays, share of plays, by owner: the first and the last of the stages."""
    rows = []
    for owner, section in details.items():
        present = [stage for stage in stages if stage in section]
        for stage in dict.fromkeys([*present[:1], *present[-1:]]):
            sampled = section[stage]["sampled"]
            n = sampled["process"]["n"]
            kinds = [
                f"{kind.replace('_', ' ')} {percent(count / n)}"
                for kind, count in sampled["failures"].items()
            ]
            who = f"{role_title(owner)}, {stage_title(stage)}"
            rows.append((who, percent(sampled["process"]["exact"]), ", ".join(kinds) or "none"))
    titles = ("who and when", "exact optimum", "what went wrong, share of plays")
    return PlainTable("How plays fall short", titles, list(rows))


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
    for kind, field in OCCASIONS.items():
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
