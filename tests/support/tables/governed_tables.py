"""A case that stands at the human gate, and all the handles that somebody might pull."""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt

from reliability.governed.cases import KEY, draw_cases, make_seating, worlds
from scenarios.team import TeamScenario
from simulator.governance.context import FullContext
from simulator.governance.durable_agents import DurableAgents
from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    Proposal,
    ReviewResponse,
    issue_approval,
)
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.reviewers import AbsentReviewer, SimulatedReviewer
from simulator.governance.governed_graph import FullGraph
from simulator.governance.runner import (
    GovernanceServices,
    make_course,
    make_full_context,
    open_services,
    play_governed,
    thread_config,
)
from simulator.governance.store.decision_log import verify_chain

OTHER_KEY = b"o" * 32
NOW_S = 1_000_000


@dataclass
class HandClock:
    """Time that stands still until somebody moves it."""

    now_s: float = NOW_S

    def __call__(self) -> float:
        return self.now_s


def counted_nonces() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def yes_man() -> SimulatedReviewer:
    """Approves whatever it is shown."""
    return SimulatedReviewer(lambda request, option: 1.0)


class Person:
    """A registered person who approves whatever it is shown."""

    name = "ann"

    async def review(self, request: ReviewRequest) -> ReviewResponse:
        return ReviewResponse(decision="approve")


CALM = worlds(shock_share=0.0)
OPTIONS = ("A", "B", "C")


@dataclass(kw_only=True)
class Stand:
    """A thread that waits for its reviewer."""

    services: GovernanceServices
    clock: HandClock
    case: TeamScenario
    thread: str
    graph: FullGraph
    context: FullContext
    path: Path
    nonce: Callable[[], str] = field(default_factory=lambda: counted_nonces())

    @property
    def config(self) -> RunnableConfig:
        return thread_config(self.thread)

    async def interrupt(self) -> Interrupt[Any]:
        """The live interrupt."""
        return (await self.graph.aget_state(self.config)).interrupts[0]

    async def proposal(self) -> Proposal:
        state = await self.graph.aget_state(self.config)
        return Proposal.model_validate(state.values["proposal"])

    async def sign(self, response: ReviewResponse | None = None, **changed: Any) -> ApprovalRecord:
        """What an honest reviewer would sign now, or something near it."""
        given: dict[str, Any] = {
            "response": response or ReviewResponse(decision="approve"),
            "key": KEY,
            "thread": self.thread,
            "reviewer": "ann",
            "now_s": self.clock(),
            "lifetime_s": 600,
        }
        if "interrupt_id" not in changed:
            given["interrupt_id"] = (await self.interrupt()).id
        if "proposal_digest" not in changed:
            given["proposal_digest"] = (await self.proposal()).digest
        if "nonce" not in changed:
            given["nonce"] = "f" + self.nonce()[1:]
        return issue_approval(**{**given, **changed})

    async def go(
        self, step: Any = None, config: RunnableConfig | None = None, context: FullContext | None = None
    ) -> Any:
        """Play on as far as it goes; a refused step ends it."""
        try:
            return await self.graph.ainvoke(
                step, config or self.config, context=context or self.context, durability="sync"
            )
        except NotApprovedError:
            return None

    async def answer(self, value: Any) -> Any:
        """Answer the live interrupt with anything; None where nothing is asked any more."""
        waiting = (await self.graph.aget_state(self.config)).interrupts
        return await self.go(Command(resume={waiting[0].id: value})) if waiting else None

    async def claim(self, values: dict[str, Any], as_node: str) -> Any:
        """Write into the state as if a node had, and play on."""
        await self.graph.aupdate_state(self.config, values, as_node=as_node)
        return await self.go()

    def count(self, kind: str) -> int:
        return self.kinds().count(kind)

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.services.log.entries()]

    def is_sound(self) -> bool:
        return verify_chain(self.services.log.entries(), head=self.services.log.head()) is None


@cache
def find_gate_case(number: int) -> int:
    """Index of the number-th case that waits at the gate with a plan that attacks can be tried on."""

    async def fits(index: int) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            try:
                async with stand_at_gate(Path(folder), index=index) as stand:
                    proposal = await stand.proposal()
            except AssertionError:
                return False
            num_open = sum(line.worth is not None for line in proposal.options)
            is_other = proposal.option in ("A", "B")  # attacks put C in its place
            return (
                is_other
                and num_open == len(OPTIONS)
                and len(proposal.parts) == 4
                and len(proposal.responsible) > 1
            )

    index = 0 if number == 0 else find_gate_case(number - 1) + 1
    while not asyncio.run(fits(index)):
        index += 1
    return index


@asynccontextmanager
async def stand_at_gate(folder: Path, *, index: int = 0, four_eyes: bool = False) -> AsyncIterator[Stand]:
    """A thread in a file store that waits at its first proposal (one with a plan)."""
    scenarios = draw_cases(index + 1)
    case, clock, path = scenarios[index], HandClock(), folder / f"store{index}.db"
    async with open_services(
        path, key=KEY, clock=clock, nonce=counted_nonces(), four_eyes=four_eyes
    ) as services:
        services.desk.reviewers.register("ann")
        seating = make_seating(scenarios)
        (episode,) = await play_governed([case], services, seating, AbsentReviewer(), CALM)
        assert episode.status == "waiting"
        course = make_course(episode.thread, seating, CALM(case), services)
        agents = DurableAgents(seating, case, course.game, episode.thread, services.ledger)
        yield Stand(
            services=services,
            clock=clock,
            case=case,
            thread=episode.thread,
            graph=services.graph(tuple(case.seats)),
            context=make_full_context(episode.thread, 0, services, agents, case, course, CALM(case)),
            path=path,
        )
