"""A run's numbers as tables: rich for terminals, Markdown for documents.

A cell reads ".62 [.60, .65] (.71)": mean verified reward of the sampled plays, 95 % interval, greedy score.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from evaluation.scoring.scores import BASELINE_STAGES, TRAINED_STAGES
from evaluation.stats.effects import is_claimed
from evaluation.summary.tables import PlainTable, markdown_table
from roles.registry import ROLES

STAGE_TITLES = {
    "random": "random",
    "constant": "constant",
    "heuristic": "heuristic",
    "oracle": "oracle",
    "untrained": "untrained",
    "sft": "SFT",
    "sft_more": "SFT longer",
    "sft_own": "SFT on own answers",
    "grpo": "GRPO",
    "corrections": "corrections",
    "dpo": "DPO",
    "kto": "KTO",
    "ppo": "PPO",
    "marl": "MARL",
}
TEAM_TITLES = {
    "random": "random team",
    "greedy": "heuristic team",
    "majority": "majority vote",
    "single": "one head that sees all, by return",
    "oracle_common": "experts of mixed habits",
    "oracle_best": "experts of the best habits",
    "oracle_searched": "best policy without seeing each other",
    "reachable": "hindsight bound: each seat's best habit",
    "oracle": "optimum",
    "untrained": "untrained",
    "sft": "SFT",
    "grpo": "GRPO",
    "marl": "MARL",
    "grpo_governed": "GRPO, governed episodes",
    "marl_governed": "MARL, governed episodes",
    "sft_instead": "SFT in place of MARL",
    "grpo_instead": "role GRPO in place of MARL",
    "sft_best_habit": "SFT on the best habits (upper control)",
    "single_sft": "single agent that sees all, SFT",
    "single_grpo": "single agent that sees all, GRPO",
}
GATE_VERDICTS = {True: "[green]pass[/green]", False: "[bold red]FAIL[/bold red]", None: "not judged"}
PARTS = ("value", "consensus", "unresolved", "escalation", "agreement", "agreement_when_wrong")
PART_TITLES = (
    "value V",
    "agreement C",
    "unresolved U",
    "escalation H",
    "votes to accept",
    "accept worthless",
)


def role_title(role: str) -> str:
    """Return the role as people say it; a role from outside keeps its name."""
    return ROLES[role].title if role in ROLES else role


def comparison_title(name: str) -> str:
    """ "grpo-sft_greedy" as "GRPO - SFT, greedy"."""
    pair, twin = (name.removesuffix("_greedy"), ", greedy") if name.endswith("_greedy") else (name, "")
    after, _, before = pair.partition("-")
    titles = TEAM_TITLES | STAGE_TITLES
    return f"{titles.get(after, after)} - {titles.get(before, before)}{twin}"


def short(value: float | None) -> str:
    """Two decimals without a leading zero: .62, 1.00, -.04; "-" for None."""
    return "-" if value is None else _bare(f"{value:.2f}")


def short_change(value: float) -> str:
    """Three decimals with a sign, so that an interval's end near 0 shows its side: +.110, -.002."""
    return _bare(f"{value:+.3f}")


def score_cell(stage: Mapping[str, Any]) -> str:
    """ ".62 [.60, .65] (.71)"; without brackets of the greedy score where there is no twin."""
    cell = interval_cell(stage)
    return cell if stage["greedy"] is None else f"{cell} ({short(stage['greedy'])})"


def change_cell(change: Mapping[str, float] | None) -> str:
    """ "+.11 [+.09, +.13]", with a * where the change may be claimed; "-" for a comparison not made."""
    if change is None:
        return "-"
    star = " *" if is_claimed(change) else ""
    mean, low, high = (short_change(change[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]{star}"


def trained_stages(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Training stages that any of the sections holds, in training order."""
    present = {stage for section in sections for stage in section}
    return [stage for stage in TRAINED_STAGES if stage in present]


def way_of_play(summary: Mapping[str, Any]) -> str:
    """Return how the judged plays were sampled, as in "at temperature 1"."""
    return f"at temperature {summary.get('temperature', 1.0):g}"


def role_table(summary: Mapping[str, Any]) -> PlainTable:
    """Roles x training stages; under each score the greedy one and the paired change."""
    return _by_role(
        summary,
        ["heuristic", *trained_stages(summary["roles"].values())],
        _stacked_cell,
        f"Roles alone: reward by the verifier, 0 to 1 ({_count(summary['roles'].values())})",
        f"mean [95 % interval] {way_of_play(summary)}, below it (greedy decoding),\n"
        "below it the change from the stage before on the same scenarios, * where it may be claimed:\n"
        "interval apart from 0, p < .05 after Holm, no smaller than what so many scenarios show",
    )


def score_table(summary: Mapping[str, Any]) -> PlainTable:
    """Roles x training stages: the scores alone."""
    stages = trained_stages(summary["roles"].values())
    return _by_role(summary, stages, _score_of, "Verified reward, mean [95 % interval] (greedy)")


def baseline_table(summary: Mapping[str, Any]) -> PlainTable:
    """Roles x baselines: what blind, constant and heuristic answers earn, and the oracle."""
    return _by_role(
        summary,
        BASELINE_STAGES,
        lambda section, stage: interval_cell(section[stage]) if stage in section else "-",
        "Roles alone: untrained players on the same scenarios",
        "mean [95 % interval]; random: a random legal answer, constant: always the same,\n"
        "heuristic: a simple rule that reads the case, oracle: the exact optimum",
    )


def exact_table(summary: Mapping[str, Any]) -> PlainTable:
    """Roles x training stages: share of exactly optimal and of feasible answers."""
    return _by_role(
        summary,
        trained_stages(summary["roles"].values()),
        lambda section, stage: _exact_cell(section.get(stage)),
        "Roles alone: optimal and feasible answers",
        "share of answers that are the exact optimum (the same, greedy) / that keep every limit",
    )


def _by_role(
    summary: Mapping[str, Any],
    stages: Sequence[str],
    write: Callable[[Mapping[str, Any], str], str],
    title: str,
    caption: str = "",
) -> PlainTable:
    rows = (
        (role_title(role), *(write(section, stage) for stage in stages))
        for role, section in summary["roles"].items()
    )
    titles = ("role", *(STAGE_TITLES[stage] for stage in stages))
    return PlainTable(title=title, titles=titles, rows=tuple(rows), caption=caption)


def team_table(summary: Mapping[str, Any]) -> PlainTable:
    """Team stages and baselines with the parts of the team reward."""
    return PlainTable(
        title=f"Whole team: team reward R and its parts ({_count([summary['team']])})",
        titles=("team", "team reward R", *PART_TITLES),
        rows=tuple(
            (TEAM_TITLES[stage], score_cell(row), *(short(row.get(part)) for part in PARTS))
            for stage, row in team_rows(summary["team"])
        ),
        caption="R: mean [95 % interval] (greedy); C: share of right votes; U: hard limits it breaks;\n"
        "H: needless or missed hand-over to a human; last: votes to accept a worthless decision",
    )


def gate_table(gates: Sequence[Mapping[str, Any]]) -> Table:
    """Gates with pass or FAIL and the numbers behind each."""
    table = Table(title="Gates", box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("gate")
    table.add_column("result")
    table.add_column("numbers", overflow="fold")
    for gate in gates:
        verdict = GATE_VERDICTS[gate["passed"]]
        table.add_row(gate["name"], verdict, gate["detail"].replace("[", "\\["))
    return table


def team_rows(team: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Team stages, baselines first."""
    return [(stage, team[stage]) for stage in TEAM_TITLES if stage in team]


def markdown(summary: Mapping[str, Any]) -> str:
    """Tables of roles and of the team's stages as GitHub Markdown, with a line on how to read them."""
    roles: Mapping[str, Any] = summary["roles"]
    stages = [stage for stage in STAGE_TITLES if any(stage in section for section in roles.values())]
    scores = [
        [role_title(role), *(_markdown_score(section.get(stage), stage) for stage in stages)]
        for role, section in roles.items()
    ]
    names = _change_names(roles)
    changes = [
        [role_title(role), *(change_cell(section.get("paired", {}).get(name)) for name in names)]
        for role, section in roles.items()
    ]
    parts = [part.replace("_", " ") for part in PARTS]
    blocks = (
        markdown_table(["role", *(STAGE_TITLES[stage] for stage in stages)], scores),
        markdown_table(["paired change", *map(comparison_title, names)], changes),
        markdown_table(["team", "reward", *parts], team_table(summary).rows),
        f"Mean verified reward {way_of_play(summary)} [95 % bootstrap interval] (greedy). Changes are paired "
        "on the same scenarios; * where one may be claimed: interval apart from 0, p < .05 after Holm's "
        "correction, no smaller than what so many scenarios show in 80 % of runs.",
    )
    return "\n\n".join(blocks) + "\n"


def _markdown_score(stage: Mapping[str, Any] | None, name: str) -> str:
    if stage is None:
        return "-"
    return score_cell(stage) if name in TRAINED_STAGES else short(stage["mean"])


def _stacked_cell(section: Mapping[str, Any], stage: str) -> str:
    if stage not in section:
        return "-"
    row = section[stage]
    greedy = "" if row["greedy"] is None else f"\n({short(row['greedy'])})"
    before = {"untrained": None, "sft": "untrained", "sft_more": "sft", "sft_own": "sft", "grpo": "sft"}.get(
        stage, "grpo"
    )
    change = section.get("paired", {}).get(f"{stage}-{before}")
    star = "*" if change and is_claimed(change) else ""
    return interval_cell(row) + greedy + (f"\n{short_change(change['mean'])}{star}" if change else "")


def _count(sections: Iterable[Mapping[str, Any]]) -> str:
    """Return the smallest number of scenarios of any stage: "400 scenarios"."""
    n = min(
        (row["n"] for section in sections for stage, row in section.items() if stage != "paired"), default=0
    )
    return f"{n} scenario{'' if n == 1 else 's'}"


def _exact_cell(stage: Mapping[str, Any] | None) -> str:
    if stage is None:
        return "-"
    greedy = "" if stage["exact_greedy"] is None else f" ({short(stage['exact_greedy'])})"
    return f"{short(stage['exact'])}{greedy} / {short(stage['feasible'])}"


def _bare(number: str) -> str:
    """Without the leading zero, and without a sign in front of nothing."""
    digits = number.lstrip("+-")
    sign = number[: len(number) - len(digits)] if digits.strip("0.") else ""
    return sign + (digits[1:] if digits.startswith("0.") else digits)


def interval_cell(stage: Mapping[str, Any]) -> str:
    """ ".62 [.60, .65]"."""
    return f"{short(stage['mean'])} [{short(stage['low'])}, {short(stage['high'])}]"


def _score_of(section: Mapping[str, Any], stage: str) -> str:
    return score_cell(section[stage]) if stage in section else "-"


def _change_names(roles: Mapping[str, Any]) -> list[str]:
    names: dict[str, None] = {}
    for section in roles.values():
        names.update(dict.fromkeys(section.get("paired", {})))
    return list(names)
