"""A case that stands at the human gate, and all the handles that somebody might pull."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt

from reliability.governed.cases import KEY, draw_cases, make_seating, worlds
from scenarios.team import TeamScenario
from simulator.governance.gate import LIFETIME_S, Display
from simulator.governance.governed_graph import FullContext, FullGraph, FullState, full_graph, open_full_case
from simulator.governance.log import Entry, EntryKind, verify_chain
from simulator.governance.proposal import Proposal, ReviewRequest, ReviewResponse
from simulator.governance.reviewers import SimulatedReviewer
from simulator.governance.runner import GovernanceServices, make_context, open_services, thread_config
from simulator.governance.seals import NotApprovedError
from simulator.graph.seating import Seating

OTHER_KEY = b"o" * 32
NOW_S = 1_000_000


@dataclass
class HandClock:
    """Time that stands still until somebody moves it."""

    now_s: float = NOW_S

    def __call__(self) -> float:
        return self.now_s


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
    first: FullState
    path: Path

    @property
    def config(self) -> RunnableConfig:
        return thread_config(self.thread)

    async def interrupt(self) -> Interrupt[Any]:
        """The live interrupt."""
        return (await self.graph.aget_state(self.config)).interrupts[0]

    async def request(self) -> ReviewRequest:
        """The request that the graph waits for."""
        return ReviewRequest.model_validate((await self.interrupt()).value)

    async def proposal(self) -> Proposal:
        return (await self.display()).proposal

    async def display(self) -> Display:
        """The display that this play has come to."""
        state = await self.graph.aget_state(self.config)
        return self.context.stand(cast(FullState, state.values)).latest

    async def submit(self, response: ReviewResponse | None = None, reviewer: str = "ann") -> Entry:
        """An honest reviewer's answer at the desk; the graph has not gone on."""
        request = await self.request()
        given = response or ReviewResponse(decision="approve")
        return self.services.gate.submit(request.interrupt_id, request.digest, given, reviewer)

    async def rule_past_desk(self, response: ReviewResponse | None = None, **changed: Any) -> Any:
        """A ruling that the key's holder writes into the log, and what the graph makes of it."""
        request, given = await self.request(), response or ReviewResponse(decision="approve")
        kinds: dict[str, EntryKind] = {"approve": "approved", "edit": "edited", "reject": "rejected"}
        body = {
            "digest": request.digest,
            "interrupt_id": request.interrupt_id,
            "option": request.proposal.option,
            "attempt": request.proposal.attempt,
            "reviewer": "ann",
            "to": given.option,
            "feedback": given.feedback,
            "expires_at_s": int(self.clock()) + LIFETIME_S,
        }
        self.services.log.append(self.thread, kinds[given.decision], {**body, **changed})
        return await self.answer(True)

    async def rule(self, response: ReviewResponse | None = None, reviewer: str = "ann") -> Any:
        """An honest reviewer's answer, and what the graph makes of it."""
        await self.submit(response, reviewer)
        return await self.answer(True)

    async def start(self) -> Any:
        """Play from the beginning to the gate."""
        return await self.go(self.first)

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
        """Resume the live interrupt with anything; None where nothing is asked any more."""
        waiting = (await self.graph.aget_state(self.config)).interrupts
        return await self.go(Command(resume={waiting[0].id: value})) if waiting else None

    async def claim(self, values: dict[str, Any], as_node: str) -> Any:
        """Write into the state as if a node had, and play on."""
        await self.graph.aupdate_state(self.config, values, as_node=as_node)
        return await self.go()

    async def jump(self, node: str, config: RunnableConfig | None = None, **values: Any) -> Any:
        """Write into the state and go on at any node."""
        if values:
            config = await self.graph.aupdate_state(config or self.config, values, as_node="close")
        return await self.go(Command(goto=node), config)

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
    async with open_services(path, key=KEY, clock=clock, four_eyes=four_eyes) as services:
        services.reviewers.register("ann")
        stand = make_stand(services, clock, case, path, make_seating(scenarios))
        await stand.start()
        assert (await stand.proposal()).thread == stand.thread
        yield stand


def make_stand(
    services: GovernanceServices, clock: HandClock, case: TeamScenario, path: Path, seating: Seating
) -> Stand:
    """All handles of the case's thread, in this process's memory."""
    thread = f"{seating.stream}/{case.key}"
    services.gate.open_case(thread, case.key, 0, list(case.seats))
    context = make_context(thread, case, seating, CALM(case), services)
    return Stand(
        services=services,
        clock=clock,
        case=case,
        thread=thread,
        graph=full_graph(tuple(case.seats), InMemorySaver()),
        context=context,
        first=open_full_case(seating.open_case(case, seating.make_game(case), rounds=2)),
        path=path,
    )
