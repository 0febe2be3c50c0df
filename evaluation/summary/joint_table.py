"""Joint training in tables (changes, gap to the best, hidden profiles, tries), and all tables of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from evaluation.summary.run_table import (
    TEAM_TITLES,
    baseline_table,
    change_cell,
    comparison_title,
    exact_table,
    gate_table,
    role_table,
    role_title,
    short,
    team_table,
)
from evaluation.summary.tables import PlainTable, for_terminal

CHANGE_CAPTION = (
    "team reward on the same cases; p by permutation, Holm-adjusted over these rows; detectable: the smallest"
    " change that so many cases show in 80 % of runs; * claimed: interval apart from 0, p < .05, no smaller"
    " than detectable"
)


def joint_tables(summary: Mapping[str, Any]) -> list[PlainTable]:
    """The tables of what the summary holds; none for a run without joint training."""
    joint = summary.get("joint", {})
    tables = [
        _change_table(summary["team"].get("paired", {})),
        _gap_table(joint.get("gap", {})),
        _hidden_table(joint.get("hidden", {})),
        _hidden_change_table(joint.get("hidden", {})),
        _pass_table(joint.get("passes", {})),
        _validation_table(joint.get("validation", {})),
        _mass_table(joint.get("gradient_mass", {})),
    ]
    return [table for table in tables if table.rows]


def seeds_joint_table(summaries: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Joint training seed by seed: team reward, share of the gap closed, hidden profiles, best and last."""
    rows = tuple(_seed_row(one) for one in summaries if one.get("joint"))
    return PlainTable(
        title="Joint training by seed",
        titles=("seed", "team reward", "gap closed", "hidden solved", "hidden V", "best validation", "last"),
        rows=rows,
        caption="before and after joint training, sampled plays; validations are greedy",
    )


def _seed_row(summary: Mapping[str, Any]) -> tuple[str, ...]:
    joint, team = summary["joint"], summary["team"]
    gap, validation = joint.get("gap", {}).get("sampled"), joint.get("validation", {})
    hidden = joint.get("hidden", {}).get("stages", {})
    before, after = (hidden.get(stage, {}) for stage in ("grpo", "marl"))
    return (
        str(summary["seed"]),
        " to ".join(short(team.get(stage, {}).get("mean")) for stage in ("grpo", "marl")),
        _percent(gap["mean"]) if gap else "-",
        f"{_percent(before['solved'])} to {_percent(after['solved'])}" if before and after else "-",
        f"{short(before['value'])} to {short(after['value'])}" if before and after else "-",
        short(validation.get("peak")),
        short(validation.get("last")),
    )


def p_cell(p: float) -> str:
    """ "< .001", ".043"."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _change_table(paired: Mapping[str, Mapping[str, Any]]) -> PlainTable:
    rows = tuple(
        (comparison_title(name), change_cell(one), p_cell(one["p"]), _detectable(one))
        for name, one in paired.items()
    )
    titles = ("paired change", "team reward", "p", "detectable")
    return PlainTable(title="Changes of the team", titles=titles, rows=rows, caption=CHANGE_CAPTION)


def _gap_table(gap: Mapping[str, Mapping[str, float]]) -> PlainTable:
    rows = tuple(
        (
            way,
            short(one["before"]),
            short(one["after"]),
            short(one["ceiling"]),
            f"{_percent(one['mean'])} [{_percent(one['low'])}, {_percent(one['high'])}]",
        )
        for way, one in gap.items()
    )
    return PlainTable(
        title="Gap to the best policy without seeing each other that joint training closes",
        titles=("play", "GRPO team", "after joint training", "searched policy", "closed"),
        rows=rows,
        caption="searched policy: experts who offer by it, funded exactly; [95 % interval]",
    )


def _hidden_table(hidden: Mapping[str, Any]) -> PlainTable:
    stages = hidden.get("stages", {})
    rows = tuple(
        (TEAM_TITLES[stage], _percent(stages[stage]["solved"]), short(stages[stage]["value"]))
        for stage in TEAM_TITLES
        if stage in stages
    )
    return PlainTable(
        title=f"Hidden profiles: {hidden.get('n', 0)} cases, {_percent(hidden.get('share', 0.0))} of all",
        titles=("team", "solved", "V"),
        rows=rows,
        caption="neither the public facts nor any single seat names the best option; solved: it was decided",
    )


def _hidden_change_table(hidden: Mapping[str, Any]) -> PlainTable:
    rows = tuple(
        (
            comparison_title(name),
            f"{100 * one['solved']:+.0f} points",
            p_cell(one["p_solved"]),
            change_cell(one),
            p_cell(one["p"]),
            _detectable(one),
        )
        for name, one in hidden.get("paired", {}).items()
    )
    return PlainTable(
        title="Changes on hidden profiles",
        titles=("paired change", "solved", "p", "V", "p", "detectable"),
        rows=rows,
        caption="p of solved by McNemar, of V by permutation, each Holm-adjusted over these rows",
    )


def _pass_table(passes: Mapping[str, Mapping[str, Any]]) -> PlainTable:
    most = max((len(one["chances"]) for one in passes.values()), default=0)
    rows = tuple(
        (TEAM_TITLES.get(stage, stage), short(one["mean_value"]), *map(short, one["chances"]))
        for stage, one in passes.items()
    )
    cases = min((one["n"] for one in passes.values()), default=0)
    return PlainTable(
        title=f"Several sampled tries ({cases} cases)",
        titles=("team", "mean V", *(f"pass^{k}" for k in range(1, most + 1))),
        rows=rows,
        caption="pass^k: chance that k tries at a case all reach V of .9 or more",
    )


def _validation_table(validation: Mapping[str, Any]) -> PlainTable:
    rows: Sequence[tuple[str, ...]] = ()
    if validation:
        error = validation["fall_error"]
        fall = short(validation["fall"]) + ("" if error is None else f" (SE {short(error)})")
        rows = (
            ("best, kept", str(validation["peak_step"]), short(validation["peak"]), ""),
            ("last", str(validation["last_step"]), short(validation["last"]), fall),
        )
    return PlainTable(
        title="Joint training: best and last validation",
        titles=("validation", "step", "team reward, greedy", "below the best"),
        rows=tuple(rows),
        caption="cases of the validation split; the best one is chosen on them: it looks a little too good",
    )


def _mass_table(mass: Mapping[str, float]) -> PlainTable:
    return PlainTable(
        title="Joint training: gradient mass",
        titles=("role", "share"),
        rows=tuple((role_title(role), _percent(share)) for role, share in mass.items()),
        caption="share of the squared gradient norms before clipping, mean over steps",
    )


def _detectable(change: Mapping[str, Any]) -> str:
    found = change.get("detectable")
    return "-" if found is None else f"{found:.3f}".removeprefix("0")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Roles, team, joint training and gates."""
    tables = [make(summary) for make in (role_table, exact_table, baseline_table, team_table)]
    return [*map(for_terminal, [*tables, *joint_tables(summary)]), gate_table(summary["gates"])]
