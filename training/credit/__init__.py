"""Credit schemes: how an episode's team reward becomes each role's score. One small file each."""

from collections.abc import Mapping

from training.credit.base import CreditScheme
from training.credit.cross_rescored import CrossRescored
from training.credit.difference import Difference
from training.credit.episode import Episode
from training.credit.hierarchical import Hierarchical
from training.credit.role_normalised import RoleNormalised
from training.credit.shared import Shared

SCHEMES: Mapping[str, type[CreditScheme]] = {
    "shared": Shared,
    "episode": Episode,
    "role_normalised": RoleNormalised,
    "difference": Difference,
    "cross_rescored": CrossRescored,
    "hierarchical": Hierarchical,
}
