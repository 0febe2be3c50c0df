"""The four kinds of error of this project, never mixed (the two that are raised live here).

A policy fault (malformed answer, illegal tool call) is data: it becomes a verdict and is never raised
out of a verifier. A broken invariant of our own is an ordinary exception with its traceback.
"""


class UserError(Exception):
    """A mistake of the person at the keyboard: shown as one line, exit status 2, no traceback.

    The message names the offending value and the remedy, for example
    ``unknown family 'ctoo'; did you mean 'cto'? (known: cto, coo, cost, ...)``.
    """

    status = 2  # exit status


class InfrastructureError(Exception):
    """An engine or a worker failed: recorded on the episode, its whole group is left out, never scored 0."""


def check_number(name: str, value: object, minimum: int) -> None:
    """Refuse what is no whole number of `minimum` or more; True and False are none.

    Raises:
        UserError: names the argument and its value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(f"{name} {value!r} must be a whole number of {minimum} or more")


def unknown(kind: str, value: str, known: list[str]) -> UserError:
    """A UserError for a name that is not in `known`, with the nearest match if there is one."""
    import difflib

    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {kind} {value!r}{hint} (known: {', '.join(known)})")
