"""A table of texts and how it is shown: by rich on a terminal, as Markdown, in the report's page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """Rows of text under a title, for a terminal, a page or a document; the first cell of a row names it.

    Example: PlainTable(title="Gradient mass", titles=("role", "share"), rows=(("CTO", ".31"),), caption="")
    """

    title: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
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


def print_tables(tables: Iterable[Table | PlainTable]) -> None:
    """Print tables; 140 columns wide where nothing says how wide the output is."""
    console = Console(width=None if Console().is_terminal else 140)
    for table in tables:
        console.print(for_terminal(table) if isinstance(table, PlainTable) else table)


def write_markdown(table: PlainTable) -> str:
    """The table alone, without title and caption."""
    return markdown_table(table.titles, table.rows)


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub Markdown; every column but the first is aligned to the right."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
