"""From labels of several reviewers to one ruling per item, and how far the reviewers agree."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from training.feedback.labels import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """One label per item that reviewers agree on.

    Example: Resolution(labels=(label,), num_replaced=0, disputed=(), agreement=None)
    """

    labels: tuple[Label, ...]  # one per settled item, in the order in which the items were first judged
    num_replaced: int  # labels that the same reviewer replaced by a later one
    disputed: tuple[str, ...]  # items without a majority and without an adjudicator's label
    agreement: float | None  # share of pairs of reviewers of one item who say the same; None: no such pair


def latest_by_reviewer(labels: Iterable[Label]) -> Mapping[str, Sequence[Label]]:
    """Item -> the latest label of every reviewer; later ones stand later in `labels`."""
    items: dict[str, dict[str, Label]] = {}
    for label in labels:
        items.setdefault(label.item, {})[label.reviewer] = label
    return {item: list(of_item.values()) for item, of_item in items.items()}


def resolve_labels(labels: Sequence[Label]) -> Resolution:
    """One ruling per item: an adjudicator's, else that of more than half of its reviewers.

    A reviewer's later label on an item replaces the earlier one. Items that stay open are left out.
    """
    items = latest_by_reviewer(labels)
    settled: list[Label] = []
    disputed = []
    num_pairs = num_same = 0
    for item, of_item in items.items():
        pairs = list(combinations([label.ruling for label in of_item], 2))
        num_pairs += len(pairs)
        num_same += sum(one == other for one, other in pairs)
        found = _settle(of_item)
        if found is None:
            disputed.append(item)
        else:
            settled.append(found)
    return Resolution(
        labels=tuple(settled),
        num_replaced=len(labels) - sum(len(of_item) for of_item in items.values()),
        disputed=tuple(disputed),
        agreement=num_same / num_pairs if num_pairs else None,
    )


def _settle(labels: Sequence[Label]) -> Label | None:
    adjudicated = [label for label in labels if label.adjudicates]
    if adjudicated:
        return max(adjudicated, key=lambda label: label.time)
    ruling, count = Counter(label.ruling for label in labels).most_common(1)[0]
    if 2 * count <= len(labels):
        return None
    return next(label for label in labels if label.ruling == ruling)
