"""Words for how something that was priced compares with the best so far, for all demonstrations alike."""

from typing import Protocol


class Priced(Protocol):
    """Anything with a worth and a cost, in k$: a part, a plan."""

    @property
    def worth(self) -> int: ...
    @property
    def cost(self) -> int: ...


def beats(one: Priced, best: Priced | None) -> bool:
    """Return whether it is worth more than the best so far, or as much for less; anything beats None."""
    return best is None or (one.worth, -one.cost) > (best.worth, -best.cost)


def compare_in_words(one: Priced, best: Priced) -> str:
    """Return "worth 20 to 12: more", "... less", or "worth 20 to 20: equal, cost 7 to 9: less" ("no less").

    Both numbers come before the word for how they compare: a model writes from left to right.
    """
    said = f"worth {one.worth} to {best.worth}: "
    if one.worth == best.worth:
        return f"{said}equal, cost {one.cost} to {best.cost}: {'less' if beats(one, best) else 'no less'}"
    return said + ("more" if beats(one, best) else "less")
