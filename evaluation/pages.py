"""Templates and files of HTML pages: minutes and reports share one style sheet and one set of macros."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from simulator.export.atomic_files import write_atomic


@cache
def _open_templates() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("evaluation"),
    )


def load_template(name: str) -> Template:
    """A page's template: everything that is put in is escaped, and everything that is named must be given."""
    return _open_templates().get_template(name)


def write_page(path: Path, page: str) -> Path:
    """Write a page; it appears under its name only once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page)
    return path
