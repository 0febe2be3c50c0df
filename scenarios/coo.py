"""The COO's family: the best overtime, shifts and contractors on one option's work plan for an amount.

Asked: which of them to buy, what they cost, what they are worth.
Right is the set of the greatest worth that costs at most the amount and keeps the deadline; of equal worth
the cheaper. Worth: every day by which the whole work is done earlier, in k$ a month.
Certified over all sets by the longest path of the graph of precedence and of owners' sequences.
The rules stand in `roles.coo`, their arithmetic in `scenarios.company.domains.staffing`, how an answer is
scored in `scenarios.company.parts.build_part_family`.
"""

from scenarios.company.domains.staffing import DOMAIN
from scenarios.company.parts import build_part_family

FAMILY = build_part_family(DOMAIN, "full")
SHORT_FAMILY = build_part_family(DOMAIN, "short")
