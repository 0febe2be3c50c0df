"""Routes a prompt to the replica that has most of it in its prefix cache, unless that one is too busy.

A replica keeps the keys of whole blocks of tokens; what it was sent lately is what it is taken to hold.
Prompts of one policy share keys with each other only, so a block's name begins with the policy's version.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

BLOCK_TOKENS = 16  # vLLM's own default on CUDA; a larger block there only makes the guess less exact


@dataclass(slots=True)
class Replica:
    """One server as the router sees it."""

    url: str
    num_in_flight: int = 0
    is_up: bool = True
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)  # chain hashes, oldest use first


class PrefixRouter:
    """Chooses replicas; the caller reports when a request is over and when a replica fails.

    Example: with equal loads, prompts that begin with the same 16 tokens go to the same replica.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        spill: int = 16,
        max_blocks: int = 65_536,
    ) -> None:
        """`spill`: requests by which a replica may be ahead of the idlest before it gets no more of them.

        Raises:
            ValueError: no replica, or one twice.
        """
        if not urls or len(set(urls)) != len(urls):
            raise ValueError(f"replicas must be one or more different URLs, got {list(urls)}")
        self.replicas = [Replica(url=url) for url in urls]
        self._spill, self._max_blocks = spill, max_blocks

    def choose(
        self, version: str, prompt_ids: Sequence[int], *, avoid: Replica | None = None
    ) -> Replica | None:
        """Choose the replica for this prompt and count it as in flight there; None where none is up.

        Longest known prefix first, then the idlest. `avoid` is taken only if it is the last one up.
        """
        up = [replica for replica in self.replicas if replica.is_up]
        up = [replica for replica in up if replica is not avoid] or up
        if not up:
            return None
        idlest = min(replica.num_in_flight for replica in up)
        open_ones = [replica for replica in up if replica.num_in_flight <= idlest + self._spill]
        chain = self._chain(version, prompt_ids)
        chosen = max(open_ones, key=lambda replica: (_known(replica, chain), -replica.num_in_flight))
        self._remember(chosen, chain)
        chosen.num_in_flight += 1
        return chosen

    def finish(self, replica: Replica) -> None:
        """Count a request of `choose` as over, well or not."""
        replica.num_in_flight -= 1

    def set_up(self, replica: Replica, is_up: bool) -> None:
        """Note that a replica failed (its cache counts as lost) or answers again."""
        if not is_up:
            replica.blocks.clear()
        replica.is_up = is_up

    def _chain(self, version: str, prompt_ids: Sequence[int]) -> list[int]:
        """Return one hash per whole block, each over everything up to its end."""
        before, chain = hash(version), []
        for start in range(0, len(prompt_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            before = hash((before, tuple(prompt_ids[start : start + BLOCK_TOKENS])))
            chain.append(before)
        return chain

    def _remember(self, replica: Replica, chain: Sequence[int]) -> None:
        for block in chain:
            replica.blocks[block] = None
            replica.blocks.move_to_end(block)
        while len(replica.blocks) > self._max_blocks:
            replica.blocks.popitem(last=False)


def _known(replica: Replica, chain: Sequence[int]) -> int:
    """Return blocks at the start of the chain that the replica was sent."""
    return sum(1 for _ in takewhile(replica.blocks.__contains__, chain))
