"""Agreement of reviewers beyond chance: Cohen's kappa of two, Fleiss' kappa of any number."""

from collections import Counter
from collections.abc import Sequence


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Kappa of two reviewers who judged the same items; None without items, or where chance explains all.

    1 is full agreement, 0 what chance gives, below 0 less than that.
    Source: Cohen 1960, A Coefficient of Agreement for Nominal Scales.

    Examples:
        >>> cohens_kappa([("yes", "yes"), ("yes", "yes"), ("no", "no"), ("no", "yes")])
        0.5
    """
    if not pairs:
        return None
    firsts, seconds = (Counter(column) for column in zip(*pairs, strict=True))
    observed = sum(one == other for one, other in pairs) / len(pairs)
    expected = sum(firsts[name] * seconds[name] for name in firsts) / len(pairs) ** 2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def fleiss_kappa(items: Sequence[Sequence[str]]) -> float | None:
    """Kappa of several reviewers, each item judged by two or more of them; None as in `cohens_kappa`.

    Items may have different numbers of judgements: an item's agreement is the share of its pairs of
    judgements that are equal, weighted by its number of judgements. With equal numbers this is Fleiss' own.
    Source: Fleiss 1971, Measuring nominal scale agreement among many raters.

    Examples:
        >>> round(fleiss_kappa([["a", "a", "a"], ["a", "b", "b"]]), 3)
        0.25
    """
    judged = [Counter(item) for item in items if len(item) > 1]
    num_judgements = sum(item.total() for item in judged)
    if not num_judgements:
        return None
    observed = sum(_share_of_pairs(item) * item.total() for item in judged) / num_judgements
    totals: Counter[str] = Counter()
    for item in judged:
        totals.update(item)
    expected = sum((count / num_judgements) ** 2 for count in totals.values())
    return None if expected == 1 else (observed - expected) / (1 - expected)


def _share_of_pairs(item: Counter[str]) -> float:
    """Return the share of pairs of judgements of one item that are equal."""
    num = item.total()
    return sum(count * (count - 1) for count in item.values()) / (num * (num - 1))
