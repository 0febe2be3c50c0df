"""Tables of texts and their cells, for terminal, Markdown and pages; and the names of roles and stages.

A cell reads ".62 [.60, .65] (.71)": mean verified reward of the sampled plays, 95 % interval, greedy score.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from evaluation.scoring.outcomes import TEAM
from evaluation.stats.intervals import is_claimed
from roles.registry import ROLES

BASELINE_TITLES = {
    "random": "random",
    "constant": "constant",
    "heuristic": "heuristic",
    "oracle": "oracle",
}
TRAINED_TITLES = {
    "untrained": "untrained",
    "sft": "SFT",
    "sft_more": "SFT longer",
    "sft_own": "SFT on own answers",
    "grpo": "GRPO",
    "corrections": "corrections",
    "dpo": "DPO",
    "ppo": "PPO",
    "marl": "MARL",
}
STAGE_TITLES = BASELINE_TITLES | TRAINED_TITLES  # of a role alone
TEAM_TITLES = {
    "random": "random team",
    "greedy": "heuristic team",
    "majority": "majority vote",
    "one_field": "optimum of one seat's parts",
    "two_fields": "optimum of two seats' parts",
    "single": "one rule that sees every seat's facts",
    "oracle_common": "experts of mixed habits",
    "oracle_best": "experts of the best habits written by hand",
    "oracle_rising": "experts of the best habits demonstrated",
    "oracle_searched": "best policy without seeing each other",
    "reachable": "hindsight bound: each seat's best habit",
    "oracle": "optimum",
    **TRAINED_TITLES,
    "single_sft": "single agent that sees all, SFT",
    "single_grpo": "single agent that sees all, GRPO",
    "grpo_governed": "GRPO, governed episodes",
    "marl_governed": "MARL, governed episodes",
    "sft_instead": "SFT in place of MARL",
    "grpo_instead": "role GRPO in place of MARL",
    "sft_best_habit": "SFT on the best habits demonstrated (upper control)",
}


def role_title(role: str) -> str:
    """Return the role as people say it; "Team" for the team; a role from outside keeps its name."""
    return "Team" if role == TEAM else ROLES[role].title if role in ROLES else role


def stage_title(stage: str) -> str:
    """Return a stage as people say it."""
    return STAGE_TITLES.get(stage) or TEAM_TITLES.get(stage, stage)


def team_title(stage: str) -> str:
    """Return a stage of the team as people say it."""
    return TEAM_TITLES.get(stage, stage)


def comparison_title(name: str) -> str:
    """ "grpo-sft_greedy" as "GRPO - SFT, greedy"."""
    pair, twin = (name.removesuffix("_greedy"), ", greedy") if name.endswith("_greedy") else (name, "")
    after, _, before = pair.partition("-")
    return f"{stage_title(after)} - {stage_title(before)}{twin}"


def list_stages(sections: Iterable[Mapping[str, Any]], titles: Mapping[str, str]) -> list[str]:
    """Stages that any section holds: those of `titles` in their order, then all others that nobody named."""
    present = {stage: None for section in sections for stage in section if stage != "paired"}
    return [one for one in titles if one in present] + [one for one in present if one not in titles]


def trained_stages(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Training stages that any of the sections holds, controls included, in training order."""
    return [one for one in list_stages(sections, TRAINED_TITLES) if one not in BASELINE_TITLES]


def short(value: float | None) -> str:
    """Two decimals without a leading zero: .62, 1.00, -.04; "-" for None."""
    return "-" if value is None else _bare(f"{value:.2f}")


def short_change(value: float) -> str:
    """Three decimals with a sign, so that an interval's end near 0 shows its side: +.110, -.002."""
    return _bare(f"{value:+.3f}")


def _bare(number: str) -> str:
    """Without the leading zero, and without a sign in front of nothing."""
    digits = number.lstrip("+-")
    sign = number[: len(number) - len(digits)] if digits.strip("0.") else ""
    return sign + (digits[1:] if digits.startswith("0.") else digits)


def percent(share: float) -> str:
    """ "62 %"."""
    return f"{100 * share:.0f} %"


def p_cell(p: float) -> str:
    """ "< .001", ".043"."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def interval_cell(stage: Mapping[str, Any] | None) -> str:
    """ ".62 [.60, .65]"; "-" for None."""
    return f"{short(stage['mean'])} [{short(stage['low'])}, {short(stage['high'])}]" if stage else "-"


def score_cell(stage: Mapping[str, Any] | None) -> str:
    """ ".62 [.60, .65] (.71)"; without brackets of the greedy score where there is no twin; "-" for None."""
    cell = interval_cell(stage)
    return cell if stage is None or stage["greedy"] is None else f"{cell} ({short(stage['greedy'])})"


def change_cell(change: Mapping[str, float] | None) -> str:
    """ "+.11 [+.09, +.13]", with a * where the change may be claimed; "-" for a comparison not made."""
    if change is None:
        return "-"
    mean, low, high = (short_change(change[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]{' *' if is_claimed(change) else ''}"


@dataclass(frozen=True, slots=True)
class PlainTable:
    """Rows of text under a title, for a terminal, a page or a document; the first cell of a row names it.

    Example: PlainTable("Gradient mass", ("role", "share"), [("CTO", ".31")], caption="of all steps")
    """

    title: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    num_names: int = 1  # columns that name a row: aligned to the left


def for_terminal(table: PlainTable) -> Table:
    """The table as rich shows it."""
    shown = Table(
        title=table.title,
        caption=table.caption or None,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
    )
    for place, title in enumerate(table.titles):
        shown.add_column(title, justify="left" if place < table.num_names else "right")
    for row in table.rows:
        shown.add_row(*(cell.replace("[", "\\[") for cell in row))
    return shown


def print_tables(tables: Iterable[PlainTable]) -> None:
    """Print tables; 140 columns wide where nothing says how wide the output is."""
    console = Console(width=None if Console().is_terminal else 140)
    for table in tables:
        console.print(for_terminal(table))


def write_markdown(table: PlainTable) -> str:
    """The table as GitHub Markdown, without title and caption; all but the first column to the right."""
    lines: Sequence[Sequence[str]] = [
        table.titles,
        ["---", *["---:"] * (len(table.titles) - 1)],
        *table.rows,
    ]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def write_section(table: PlainTable, heading: str = "###") -> str:
    """The table as GitHub Markdown under its title, its caption below."""
    caption = f"\n\n{table.caption}." if table.caption else ""
    return f"{heading} {table.title}\n\n{write_markdown(table)}{caption}"


def _markdown_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
