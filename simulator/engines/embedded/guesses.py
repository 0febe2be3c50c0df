"""Guesses of what a transcript says next, from what others of its policy and it itself said before.

Many tokens of a tool call or an answer repeat an earlier text: a step feeds the guess behind the last token
and samples at all of its places; guesses are kept up to the first that was not sampled. A token depends on
its transcript, its place and the seed alone, so that transcripts are those of sampling one by one.
Source: prompt lookup decoding; with the texts of other rollouts, SuffixDecoding, arXiv:2411.04975.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

SIZES = (8, 4, 2)  # tokens that must agree, the longest first
MOST_PLACES = 4  # of one run of tokens that are remembered
MOST_TOKENS = 1 << 19  # of all texts; then all is forgotten

_Runs = dict[tuple[int, ...], deque[tuple[list[int], int]]]


@dataclass(slots=True, eq=False)
class Guesses:
    """Remembers what followed each run of tokens, latest first, in the texts of one policy."""

    _runs: dict[int, _Runs] = field(default_factory=lambda: {size: {} for size in SIZES})
    _num_tokens: int = 0

    def learn(self, text: list[int], start: int) -> None:
        """Remember what stands at places `start` and later; `text` may grow afterwards."""
        if self._num_tokens > MOST_TOKENS:
            self._runs, self._num_tokens = {size: {} for size in SIZES}, 0
        self._num_tokens += len(text) - start
        for size, runs in self._runs.items():
            for place in range(max(start, size), len(text)):
                run = tuple(text[place - size : place])
                runs.setdefault(run, deque(maxlen=MOST_PLACES)).appendleft((text, place))

    def find(self, text: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that may follow `text`: of the latest place that has as many."""
        best: list[int] = []
        if count < 1:
            return best
        for size, runs in self._runs.items():
            for source, place in runs.get(tuple(text[-size:]), ()):
                found = source[place : place + count]
                if len(found) == count:
                    return found
                if len(found) > len(best):
                    best = found
        return best
