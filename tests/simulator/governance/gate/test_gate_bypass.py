"""G1: no way past the human gate commits anything; the honest way does."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from finality_probes import FINALITY_PROBES
from gate_probes import OTHER_OPTION, PROBES
from governed_tables import find_gate_case, stand_at_gate
from trial_counts import num_trials

from simulator.governance.proposal import ReviewResponse

ALL_PROBES = {**PROBES, **FINALITY_PROBES}


async def break_in(name: str, folder: Path, *, index: int = 0, is_grouped: bool = False) -> None:
    """Try one way past the gate; nothing may have been committed, carried out or left unsound."""
    async with stand_at_gate(folder, index=index) as stand:
        with stand.services.log.grouping() if is_grouped else nullcontext():
            await ALL_PROBES[name](stand)
        assert stand.count("committed") == 0
        assert stand.count("executed") == 0
        assert not {"committed", "executed", "observed"} & set(stand.kinds())
        assert stand.is_sound()


@pytest.mark.parametrize("seed", range(num_trials(1, 20)))
@pytest.mark.parametrize("name", ALL_PROBES)
def test_nothing_gets_past_the_gate(name: str, seed: int, tmp_path: Path) -> None:
    asyncio.run(break_in(name, tmp_path, index=find_gate_case(seed), is_grouped=seed % 2 == 1))


def test_the_honest_way_is_open(tmp_path: Path) -> None:
    """The same stand, the same calls: with a live approval of exactly this proposal it commits."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            final = await stand.rule()
            assert final["status"] == "completed"
            assert stand.count("committed") == 1
            assert stand.count("executed") == 4

    asyncio.run(run())


def test_an_edit_leads_to_a_new_proposal_that_can_be_approved(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            first = await stand.proposal()
            other = OTHER_OPTION[first.option]
            await stand.rule(ReviewResponse(decision="edit", option=other))
            second = await stand.proposal()
            assert (second.option, second.revision) == (other, 1)
            assert second.digest != first.digest
            assert stand.count("committed") == 0
            final = await stand.rule()
            assert final["status"].startswith("completed")
            assert stand.count("committed") == 1

    asyncio.run(run())
