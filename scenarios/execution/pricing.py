"""Parts of a case priced anew after a structure of it has changed."""

from dataclasses import replace

from scenarios.company.domain import Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.records import CompanyCase


def read_terms(case: CompanyCase, seat: str) -> Terms:
    """Read what the seat's figures are worth in this case, and its limit."""
    return Terms(rates=case.rates[seat], limits=case.limits[seat])


def price_option(case: CompanyCase, option: str) -> CompanyCase:
    """The case with every part on one option priced from its structures as they stand."""
    parts = {
        seat: {
            **own,
            option: price_parts(DOMAINS[seat], case.structures[seat][option], read_terms(case, seat), option),
        }
        for seat, own in case.parts.items()
    }
    return replace(case, parts=parts)


def measure_worth(case: CompanyCase, seat: str, option: str, choice: tuple[str, ...]) -> int:
    """k$ that the figures of the seat's structure are worth with this choice."""
    domain = DOMAINS[seat]
    return domain.value(read_terms(case, seat), domain.measure(case.structures[seat][option], choice))
