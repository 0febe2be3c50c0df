"""The Risk officer's family: the best controls on one option's threat graph for an amount of money.

Asked: which controls to buy, what they cost, what they are worth.
Right is the set of the greatest worth that costs at most the amount and keeps the expected loss within the
appetite; of equal worth the cheaper. Worth: expected loss that is avoided, in k$ a month.
Certified over all sets by inclusion and exclusion over the paths of steps to each asset.
The rules stand in `roles.risk`, their arithmetic in `scenarios.company.domains.threats`, how an answer is
scored in `scenarios.company.parts.build_part_family`.
"""

from scenarios.company.domains.threats import DOMAIN
from scenarios.company.parts import build_part_family

FAMILY = build_part_family(DOMAIN, "full")
SHORT_FAMILY = build_part_family(DOMAIN, "short")
