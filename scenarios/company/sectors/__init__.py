"""The sectors that company cases are told in, by name.

A sector is one entry of one file here.
"""

from scenarios.company.sectors import finance, industry, networks, public, services
from scenarios.company.sectors.sector import Sector

SECTORS: dict[str, Sector] = {
    sector.name: sector
    for group in (
        finance.SECTORS,
        public.SECTORS,
        networks.SECTORS,
        industry.SECTORS,
        services.SECTORS,
    )
    for sector in group
}
