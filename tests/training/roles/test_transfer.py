"""The benchmark of transfer runs end to end; its figures are published, not tested."""

import pytest

from benchmarks.roles.transfer import measure_transfer, write_table


@pytest.mark.slow
def test_both_models_are_measured_on_the_same_cases_after_the_same_steps() -> None:
    found = measure_transfer("cto", role_steps=2, seat_steps=[0, 2], num_cases=3)
    assert [one.seat_steps for one in found] == [0, 2]
    for one in found:
        assert len(one.untrained) == len(one.role_trained) == 3
        assert all(0 <= reward <= 1 for reward in (*one.untrained, *one.role_trained))
    assert len(write_table(found)) == 4
