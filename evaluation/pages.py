"""Templates and files of HTML pages: minutes and reports share style sheet, macros and palette."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from simulator.export.atomic_files import write_atomic

# of light pages and of the charts on them; stages in Okabe and Ito's colours, safe for colour-blind readers
PALETTE = {
    "ink": "#1c2733",
    "muted": "#5a6875",
    "line": "#dce3ea",
    "baseline": "#b8c2cc",
    "untrained": "#8b98a5",
    "sft": "#56b4e9",
    "sft_more": "#a6d5f3",
    "sft_own": "#7fbfe8",
    "grpo": "#0072b2",
    "corrections": "#009e73",
    "dpo": "#cc79a7",
    "ppo": "#b07d00",
    "marl": "#d55e00",
}


@cache
def _open_templates() -> Environment:
    templates = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("evaluation"),
    )
    templates.globals["palette"] = PALETTE
    return templates


def load_template(name: str) -> Template:
    """A page's template: everything that is put in is escaped, and everything that is named must be given."""
    return _open_templates().get_template(name)


def write_page(path: Path, page: str) -> Path:
    """Write a page; it appears under its name only once it is whole."""
    write_atomic(path, page)
    return path
