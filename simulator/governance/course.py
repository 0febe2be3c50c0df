"""The course of a thread: which plans were carried out, and the case and game that stand after them.

The decision log is asked, not the graph's state: what was spent and bought is under its seals.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from scenarios.team.playable import PlayableCase
from simulator.game import MakeGame, TeamGame
from simulator.governance.gate.approvals import Proposal
from simulator.governance.outcomes import CarriedPlan, Outcomes
from simulator.governance.store.decision_log import DecisionLog

WriteBriefs = Callable[[PlayableCase, TeamGame], dict[str, str]]


class Course:
    """The course of one thread."""

    def __init__(
        self,
        thread: str,
        outcomes: Outcomes,
        make_game: MakeGame,
        write_briefs: WriteBriefs,
        log: DecisionLog,
    ) -> None:
        """`write_briefs` writes what the seats read first of a case."""
        self._thread, self._outcomes, self._log = thread, outcomes, log
        self._make_game, self._write_briefs = make_game, write_briefs
        self._known: dict[int, tuple[PlayableCase, TeamGame]] = {}  # by number of plans

    def list_plans(self) -> dict[str, CarriedPlan]:
        """Return the plans that were carried out and then planned anew, by their proposals' digests.

        Raises:
            NotApprovedError: "tampered": an entry of the log is not as it was written.
        """
        observed = {
            entry.body["digest"]: CarriedPlan(
                option=entry.body["option"],
                funded={seat: tuple(choice) for seat, choice in entry.body["funded"].items()},
                costs=entry.body["costs"],
                worths=entry.body["worths"],
            )
            for entry in self._log.find(self._thread, "observed")
        }
        replanned = [entry.body["digest"] for entry in self._log.find(self._thread, "replanned")]
        return {digest: observed[digest] for digest in replanned}

    def list_before(self, digest: str) -> list[CarriedPlan]:
        """Return the plans that were carried out before the proposal of this digest."""
        plans = self.list_plans()
        names = list(plans)
        before = names[: names.index(digest)] if digest in plans else names
        return [plans[name] for name in before]

    @property
    def case(self) -> PlayableCase:
        """The case as it stands now."""
        return self._stand(list(self.list_plans().values()))[0]

    @property
    def game(self) -> TeamGame:
        """The game on the case as it stands now, whenever it is asked."""
        return cast(TeamGame, _CurrentGame(lambda: self._stand(list(self.list_plans().values()))[1]))

    def write_first_briefs(self) -> dict[str, str]:
        """Write what the seats read of the case before any plan."""
        return self._write_briefs(*self._stand([]))

    def continue_with(self, digest: str, plan: CarriedPlan) -> tuple[PlayableCase, dict[str, str]]:
        """Return the case once the plan of this digest too is planned anew, and its seats' briefs."""
        case, game = self._stand([*self.list_before(digest), plan])
        return case, self._write_briefs(case, game)

    def _stand(self, plans: Sequence[CarriedPlan]) -> tuple[PlayableCase, TeamGame]:
        if len(plans) not in self._known:
            case = self._outcomes.continue_case(plans)
            self._known[len(plans)] = case, self._make_game(case)
        return self._known[len(plans)]


class _CurrentGame:
    """A game that is looked up anew at every use."""

    def __init__(self, find: Callable[[], TeamGame]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)


def read_plan(proposal: Proposal) -> CarriedPlan:
    """Return what a proposal funds; seats by name, as a plan that is read from the log has them."""
    bought = sorted((part for part in proposal.parts if part.choice), key=lambda part: part.role)
    return CarriedPlan(
        option=proposal.option,
        funded={part.role: tuple(part.choice) for part in bought},
        costs={part.role: part.cost for part in bought},
        worths={part.role: part.worth for part in bought},
    )
