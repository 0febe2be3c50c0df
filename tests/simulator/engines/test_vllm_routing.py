"""Which replica gets which prompt: no server is needed for that."""

import pytest

from simulator.engines.vllm.server_client import PrefixRouter, Replica, _known

CASES = [tuple(range(100 * case, 100 * case + 40)) for case in range(20)]


def make_router(spill: int = 1000) -> PrefixRouter:
    return PrefixRouter(["http://a", "http://b"], spill=spill)


def choose(router: PrefixRouter, prompt: tuple[int, ...], version: str = "base@0") -> Replica:
    replica = router.choose(version, prompt)
    assert replica is not None
    return replica


def test_prompts_with_a_common_beginning_go_to_one_replica_and_cases_are_spread() -> None:
    router = make_router()
    first = [choose(router, case).url for case in CASES]
    assert {first.count("http://a"), first.count("http://b")} == {10}  # the idlest takes what is new
    for case, url in zip(CASES, first, strict=True):
        assert {choose(router, (*case[:32], 7, role)).url for role in range(5)} == {url}


def test_the_longest_known_prefix_wins() -> None:
    router = make_router()
    short, long = CASES[0][:16], CASES[0]
    on_a = choose(router, short)
    on_b = choose(router, CASES[1])
    assert on_a is not on_b
    for replica in (on_a, on_b):  # the whole case went to b once, its first block to both
        router.finish(replica)
    router.set_up(on_a, False)
    assert choose(router, long) is on_b
    router.set_up(on_a, True)
    choose(router, short)
    assert choose(router, long) is on_b


def test_versions_share_nothing() -> None:
    router = make_router()
    first = choose(router, CASES[0], "cto@1")
    assert choose(router, CASES[0], "cto@2") is not first  # nothing known of it: the idlest


def test_a_busy_replica_spills_and_takes_its_prompts_back_later() -> None:
    router = make_router(spill=3)
    chosen = [choose(router, CASES[0]).url for _ in range(8)]
    assert chosen[:4] == [chosen[0]] * 4  # 0, 1, 2 and 3 ahead
    assert len(set(chosen)) == 2
    loads = sorted(replica.num_in_flight for replica in router.replicas)
    assert sum(loads) == 8
    assert loads[1] - loads[0] <= 4


def test_a_replica_that_is_down_gets_nothing_and_comes_back_without_memory() -> None:
    router = make_router()
    first = choose(router, CASES[0])
    router.finish(first)
    router.set_up(first, False)
    other = choose(router, CASES[0])
    assert other is not first
    router.set_up(first, True)
    assert choose(router, CASES[0]) is other  # which knows the case now; the first has forgotten it
    router.set_up(first, False)
    router.set_up(other, False)
    assert router.choose("base@0", CASES[0]) is None


def test_a_retry_avoids_the_replica_that_failed_unless_it_is_the_only_one() -> None:
    router = make_router()
    first = choose(router, CASES[0])
    second = router.choose("base@0", CASES[0], avoid=first)
    assert second is not None
    assert second is not first
    router.set_up(second, False)
    assert router.choose("base@0", CASES[0], avoid=first) is first


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    router = PrefixRouter(["http://a", "http://b"], max_blocks=4, spill=1000)
    busy, used, unused = choose(router, CASES[0]), CASES[0][:16], CASES[0][:32]
    for case in CASES[1:]:  # each new case goes to the idlest; `used` always to where it is known
        assert choose(router, used) is busy
        router.finish(busy)
        choose(router, case)
    assert [len(replica.blocks) for replica in router.replicas] == [4, 4]
    assert choose(router, used) is busy
    assert len(router.replicas[0].blocks) == 4
    assert known_blocks(router, busy, unused) == 1  # its second block was not used again and is forgotten


def known_blocks(router: PrefixRouter, replica: Replica, prompt: tuple[int, ...]) -> int:
    """How much of the prompt the router takes the replica to hold."""
    return _known(replica, router._chain("base@0", prompt))


@pytest.mark.parametrize("urls", [[], ["http://a", "http://a"]])
def test_replicas_must_be_different_and_at_least_one(urls: list[str]) -> None:
    with pytest.raises(ValueError, match="different URLs"):
        PrefixRouter(urls)
