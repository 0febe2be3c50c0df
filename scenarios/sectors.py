"""The sectors whose cases the families tell: the first word of every brief."""

SECTORS: tuple[str, ...] = ("bank", "retail", "health", "energy", "telecom", "media", "freight", "public")
