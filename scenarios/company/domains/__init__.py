"""The four seats' domains, by seat.

A new domain is its file and one line here.
"""

from scenarios.company.bought import with_bought
from scenarios.company.domain import Domain
from scenarios.company.domains.architecture import DOMAIN as ARCHITECTURE
from scenarios.company.domains.purchase import DOMAIN as PURCHASE
from scenarios.company.domains.staffing import DOMAIN as STAFFING
from scenarios.company.domains.threats import DOMAIN as THREATS

DOMAINS: dict[str, Domain] = {
    domain.seat: with_bought(domain) for domain in (ARCHITECTURE, STAFFING, THREATS, PURCHASE)
}
