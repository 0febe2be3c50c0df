"""Credit of single tokens: what a token changes among messages of one seat that begin alike.

The messages that one policy sampled on one prompt form a tree. A token is compared with what else was said
after the same beginning, so a choice that several messages share is judged by all of them, and what follows
without any alternative gets nothing. Nothing is generated and no value is learnt.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.estimators import LEAST_SPREAD


def share_by_prefix(messages: Sequence[Sequence[int]], values: Sequence[float]) -> list[list[float]]:
    """One credit per token of every message; those of a message add up to its value.

    A token's credit is the mean value of the messages that agree up to and with it, minus the mean value of
    those that agree up to it (0 before the first token: advantages are centred already).
    """
    node_of = [0] * len(messages)  # the beginning that each message has reached
    mean = {0: 0.0}
    credits: list[list[float]] = [[] for _ in messages]
    for place in range(max(map(len, messages), default=0)):
        reached: dict[tuple[int, int], list[int]] = {}
        for number, message in enumerate(messages):
            if place < len(message):
                reached.setdefault((node_of[number], message[place]), []).append(number)
        for (before, _), numbers in reached.items():
            node = len(mean)
            mean[node] = statistics.fmean(values[number] for number in numbers)
            gain = mean[node] - mean[before]
            for number in numbers:
                node_of[number] = node
                credits[number].append(gain if abs(gain) >= LEAST_SPREAD else 0.0)
    return credits
