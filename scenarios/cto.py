"""The CTO's family: the best upgrades of one option's architecture that an amount of money pays for.

Asked: which upgrades (a spare machine, a faster or a managed component), what they cost, what they are worth.
Right is the set of the greatest worth that costs at most the amount and keeps the SLO; of equal worth the
cheaper. Worth: latency under a reference and availability over the SLO, exactly, in k$ a month.
Certified over all sets by the longest path and all up and down states of a networkx graph.
The rules stand in `roles.cto`, their arithmetic in `scenarios.company.domains.architecture`, how an answer is
scored in `scenarios.company.parts.build_part_family`.
"""

from scenarios.company.domains.architecture import DOMAIN
from scenarios.company.parts import build_part_family

FAMILY = build_part_family(DOMAIN, "full")
SHORT_FAMILY = build_part_family(DOMAIN, "short")
