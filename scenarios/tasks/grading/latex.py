r"""LaTeX of answers as the plain notation of `expressions.py`: \frac, \sqrt, braces, functions, Greek.

It is a translation of text to text; an unknown command is refused, nothing is guessed. A function without
brackets takes the product that follows it: \sin 2x is sin(2x), and \sin^2 x is (sin(x))^2.
"""

import re
from collections.abc import Callable

from scenarios.tasks.grading.expressions import FUNCTIONS, MAX_CHARS, MAX_DEPTH, ExpressionError

_FRACTIONS = frozenset({"frac", "dfrac", "tfrac"})
_SIGNS = {"cdot": "*", "times": "*", "ast": "*", "div": "/", "%": "%", "lbrace": "(", "rbrace": ")"}
_SPACES = frozenset({"left", "right", ",", ";", "!", ":", " ", "quad", "displaystyle", "mathrm"})
_LETTERS = frozenset(
    {
        *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma"),
        *("tau", "phi", "varphi", "psi", "omega", "pi"),
    }
)
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|[0-9][0-9.,]*|[A-Za-z]+|\s+|.", re.DOTALL)


def read_latex(text: str) -> str:
    r"""The text in plain notation; a text without LaTeX as it is.

    Example: read_latex(r"\frac{1}{2}\sqrt{x}") == "((1)/(2))sqrt(x)"

    Raises:
        ExpressionError: an unknown command, braces that do not match, nested too deep.
    """
    stripped = text.strip()
    for opening, closing in _WRAPPERS:
        inside = stripped[len(opening) : len(stripped) - len(closing)]
        if len(stripped) > len(opening + closing) and stripped == f"{opening}{inside}{closing}":
            stripped = inside.strip()
            break
    if len(stripped) > MAX_CHARS:
        raise ExpressionError(f"an expression has at most {MAX_CHARS} characters, this one {len(stripped)}")
    if not any(sign in stripped for sign in "\\{}"):
        return stripped
    return _Reader(_TOKEN.findall(stripped)).read_all()


class _Reader:
    """Recursive descent over LaTeX's groups."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._position, self._depth = tokens, 0, 0

    def read_all(self) -> str:
        text = self._sequence(None)
        if self._position < len(self._tokens):
            raise ExpressionError("a closing brace without its opening one")
        return text

    def _sequence(self, closing: str | None) -> str:
        """Everything up to the closing sign, which is taken too."""
        pieces: list[str] = []
        while self._position < len(self._tokens):
            if self._peek() == closing:
                self._position += 1
                return "".join(pieces)
            if self._peek() == "}":
                break
            pieces.append(self._piece())
        if closing is not None:
            raise ExpressionError(f"{closing!r} is missing")
        return "".join(pieces)

    def _piece(self) -> str:
        token = self._take()
        if token == "{":
            return f"({self._nest(lambda: self._sequence('}'))})"
        if token == "(":
            return f"({self._nest(lambda: self._sequence(')'))})"
        if not token.startswith("\\"):
            if token in ("_", "&", "|"):
                raise ExpressionError(f"unexpected {token!r}")
            return token
        name = token[1:]
        if name in _SPACES:
            return " "
        if name in _SIGNS:
            return _SIGNS[name]
        if name in _LETTERS:
            return f" {name} "
        if name in _FRACTIONS:
            return f"(({self._nest(self._group)})/({self._nest(self._group)}))"
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS:
            return self._function(name)
        raise ExpressionError(f"unknown command {token[:20]!r}")

    def _root(self) -> str:
        if self._peek() == "[":
            self._position += 1
            degree = self._nest(lambda: self._sequence("]"))
            return f"(({self._nest(self._group)})^(1/({degree})))"
        return f"sqrt({self._nest(self._group)})"

    def _function(self, name: str) -> str:
        power = ""
        self._skip_spaces()
        if self._peek() == "^":
            self._position += 1
            power = self._nest(self._group)
            if power.strip().startswith("-"):
                raise ExpressionError(f"{name}^{power} may be an inverse: write arc{name} or a fraction")
        applied = f"{name}({self._nest(self._argument)})"
        return f"({applied})^({power})" if power else applied

    def _argument(self) -> str:
        """A group or bracket right after a function, else the product that follows it."""
        self._skip_spaces()
        if self._peek() in ("{", "("):
            return self._piece()[1:-1]
        pieces: list[str] = []
        while self._is_factor(self._peek()):
            pieces.append(self._piece())
        if not pieces:
            raise ExpressionError("a function without its argument")
        return "".join(pieces)

    def _is_factor(self, token: str) -> bool:
        name = token.removeprefix("\\")
        is_letter = token.startswith("\\") and (name in _LETTERS or name in _FRACTIONS or name == "sqrt")
        return is_letter or (token.isascii() and token[:1].isalnum())

    def _group(self) -> str:
        """A group in braces, or the one digit, letter or command that LaTeX takes without them."""
        self._skip_spaces()
        if self._peek() == "{":
            return self._piece()[1:-1]
        if not self._peek() or self._peek() in ("}", ")", "]"):
            raise ExpressionError("a command without its argument")
        if not self._peek().startswith("\\") and len(self._peek()) > 1:
            raise ExpressionError(f"put braces around {self._peek()[:10]!r}")
        return self._piece()

    def _nest(self, read: Callable[[], str]) -> str:
        if self._depth == MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        self._depth += 1
        inside = read()
        self._depth -= 1
        return inside

    def _skip_spaces(self) -> None:
        while self._peek() in ("\\left", "\\right", "\\,", "\\ ") or (
            self._peek() and self._peek().isspace()
        ):
            self._position += 1

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        self._position += 1
        return self._tokens[self._position - 1]
