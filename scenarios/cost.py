"""The Cost officer's family: the best tiers of one option's price list for an amount of money.

Asked: which committed or premium tiers to buy, what they cost, what they are worth.
Right is the set of the greatest worth that costs at most the amount and keeps the quality floor; of equal
worth the cheaper. Worth: what is saved on list prices, and quality points up to a ceiling, in k$ a month.
Certified over all sets item by item: the bill before and after, and the tiers' costs one by one.
The rules stand in `roles.cost`, their arithmetic in `scenarios.company.domains.purchase`, how an answer is
scored in `scenarios.company.parts.build_part_family`.
"""

from scenarios.company.domains.purchase import DOMAIN
from scenarios.company.parts import build_part_family

FAMILY = build_part_family(DOMAIN, "full")
SHORT_FAMILY = build_part_family(DOMAIN, "short")
