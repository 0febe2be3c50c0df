"""House practices of a team case: what a report's flag says, how ReconcileGPT weighs flags, who holds which.

`house` is the family as it is: one pair of practices (stakes, priority) serves the team best. `symmetric`
has two equally good pairs that are each other's mirror image, so that only a team's own training can choose:
(stakes, priority) and (calm, reserve) decide alike on every case, and a role from a team of the other pair
costs value. There every seat's stakes lie in another band, in random order, so that the flags of a case are
0 to 3 once each under either practice: what ReconcileGPT reads does not tell which of the two was meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roles.errors import unknown

ConventionsName = Literal["house", "symmetric"]
LARGEST_FLAG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPractice:
    """How an expert flags: by how many thresholds its number reaches.

    Example: ReportPractice(share=0.45, basis="stakes", flag_from=(25, 60, 80))
    """

    share: float  # of experts
    basis: Literal["favourite", "stakes"]  # the number: the favourite's utility, or the seat's stakes
    flag_from: tuple[int, int, int]  # least number for the first, second and third threshold
    is_mirrored: bool = False  # the flag is 3 less the thresholds reached


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPractice:
    """How an expert decides, among open options.

    Example: DecisionPractice(share=0.45, rule="highest flag")
    """

    share: float  # of experts
    rule: Literal["most picks", "highest flag", "lowest flag"]  # then the first letter, or the first to speak


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """The practices that demonstrations show, all equally right by a role's own verdict.

    Example: CONVENTIONS["house"].best == ("stakes", "priority")
    """

    name: ConventionsName
    reports: Mapping[str, ReportPractice]
    decisions: Mapping[str, DecisionPractice]
    best: tuple[str, str]  # the pair that serves the team best, or one of several equally good ones
    # stakes from least to most: every seat's are drawn from another band. None: as the case draws them
    stakes_bands: tuple[tuple[int, int], ...] | None = None

    @property
    def report_shares(self) -> dict[str, float]:
        """Practice -> share of experts."""
        return {name: practice.share for name, practice in self.reports.items()}

    @property
    def decision_shares(self) -> dict[str, float]:
        """Practice -> share of experts."""
        return {name: practice.share for name, practice in self.decisions.items()}

    def report_practice(self, name: str) -> ReportPractice:
        """The practice of this name.

        Raises:
            UserError: none of these conventions.
        """
        if name not in self.reports:
            raise unknown("report practice", name, sorted(self.reports))
        return self.reports[name]

    def decision_practice(self, name: str) -> DecisionPractice:
        """The practice of this name.

        Raises:
            UserError: none of these conventions.
        """
        if name not in self.decisions:
            raise unknown("decision practice", name, sorted(self.decisions))
        return self.decisions[name]


HOUSE = Conventions(
    name="house",
    reports={
        "conviction": ReportPractice(share=0.55, basis="favourite", flag_from=(70, 82, 92)),
        "stakes": ReportPractice(share=0.45, basis="stakes", flag_from=(25, 60, 80)),
    },
    decisions={
        "headcount": DecisionPractice(share=0.55, rule="most picks"),
        "priority": DecisionPractice(share=0.45, rule="highest flag"),
    },
    best=("stakes", "priority"),
)
SYMMETRIC = Conventions(
    name="symmetric",
    reports={
        "stakes": ReportPractice(share=0.5, basis="stakes", flag_from=(20, 30, 40)),
        "calm": ReportPractice(share=0.5, basis="stakes", flag_from=(20, 30, 40), is_mirrored=True),
    },
    decisions={
        "priority": DecisionPractice(share=0.5, rule="highest flag"),
        "reserve": DecisionPractice(share=0.5, rule="lowest flag"),
    },
    best=("stakes", "priority"),
    stakes_bands=((10, 19), (20, 29), (30, 39), (80, 99)),
)
CONVENTIONS: Mapping[ConventionsName, Conventions] = {"house": HOUSE, "symmetric": SYMMETRIC}
