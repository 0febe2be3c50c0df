"""Credit schemes: how an episode's team reward becomes each role's advantage. One small file each."""

from collections.abc import Mapping

from training.credit.base import CreditScheme
from training.credit.difference import Difference
from training.credit.shared import Shared

SCHEMES: Mapping[str, type[CreditScheme]] = {"shared": Shared, "difference": Difference}
