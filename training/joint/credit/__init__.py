"""Credit: scored groups to advantages.

Belongs here: credit schemes (one small file each), worth of offers, counterfactual play, credit of votes,
estimators, critic.
Not here: rewards (training/joint/score.py), rows and losses.
"""

from collections.abc import Mapping

from training.joint.credit.base import CreditScheme
from training.joint.credit.cross_rescored import CrossRescored
from training.joint.credit.cross_valued import CrossValued
from training.joint.credit.difference import Difference
from training.joint.credit.episode import Episode
from training.joint.credit.hierarchical import Hierarchical
from training.joint.credit.role_normalised import RoleNormalised
from training.joint.credit.shapley import Shapley
from training.joint.credit.shared import Shared

SCHEMES: Mapping[str, type[CreditScheme]] = {
    "shared": Shared,
    "episode": Episode,
    "role_normalised": RoleNormalised,
    "difference": Difference,
    "shapley": Shapley,
    "cross_rescored": CrossRescored,
    "cross_valued": CrossValued,
    "hierarchical": Hierarchical,
}
