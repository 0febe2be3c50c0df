"""RACI duties of a plan: they follow from what is funded, and from whose figures fell short before."""

from collections import Counter
from collections.abc import Sequence

from simulator.governance.gate.approvals import PlanPart
from simulator.governance.precedents import Precedent
from simulator.governance.state import Duty


def assign_duty(seats: list[str], parts: Sequence[PlanPart], precedents: Sequence[Precedent]) -> Duty:
    """Assign RACI. Responsible are the seats that something is bought for; all of them where nothing is.

    Accountable is the responsible seat whose KPI fell most often in recalled cases: of equals the one with
    the dearest part, then the first.
    """
    costs = {part.role: part.cost for part in parts if part.choice}
    responsible = [seat for seat in seats if seat in costs] or list(seats)
    fallen = Counter(seat for precedent in precedents for seat in precedent["alerts"])
    accountable = max(responsible, key=lambda seat: (fallen[seat], costs.get(seat, 0)))
    return Duty(
        responsible=responsible,
        accountable=accountable,
        consulted=[seat for seat in seats if seat not in responsible],
        informed=["reviewer"],
    )
