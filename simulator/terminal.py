"""A person at the terminal, who reviews plans or plays a seat."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from roles.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """The lines that a person types and reads; tests put functions of their own in the place of these."""

    read_line: Callable[[str], str] = input  # shows a question; EOFError at the end of input
    write: Callable[[str], object] = print
    is_terminal: Callable[[], bool] = lambda: sys.stdin.isatty()

    def require_person(self, remedy: str) -> None:
        """
        Raises:
            UserError: standard input is no terminal, so no person can be asked.
        """
        if not self.is_terminal():
            raise UserError(remedy)


STANDARD = Terminal()


def show(text: str) -> str:
    """Escape unprintable characters, ends of lines too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
