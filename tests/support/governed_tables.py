"""A case that stands at the human gate, and all the handles that somebody might pull."""

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt
from team_tables import CHAT, SAMPLING, TEAM, oracle_engine

from roles.registry import ROLES
from roles.team import Decision
from scenarios.team import TeamScenario, decision_value, generate
from simulator.engines.base import Engine
from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    Proposal,
    ReviewResponse,
    issue_approval,
)
from simulator.governance.gate.reviewers import AbsentReviewer, ReviewRequest, SimulatedReviewer
from simulator.governance.governed_graph import FullGraph
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.runner import Office, make_full_context, open_office, play_governed, thread_config
from simulator.governance.state import FullContext
from simulator.governance.store.decision_log import verify_chain
from simulator.governance.voices import Voices
from simulator.graph.seating import Seating

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOW_S = 1_000_000


@dataclass
class HandClock:
    """Time that stands still until somebody moves it."""

    now_s: float = NOW_S

    def __call__(self) -> float:
        return self.now_s


def draw_cases(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def counted_nonces() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def make_seating(
    scenarios: Sequence[TeamScenario], *, stream: str = "g", engine: Engine | None = None
) -> Seating:
    return Seating(
        team=TEAM,
        engine=engine
        or oracle_engine(list(scenarios), report_practice="stakes", decision_practice="priority"),
        chat=CHAT,
        sampling=SAMPLING,
        stream=stream,
        max_turns=4,
        roles=ROLES,
    )


def expert_reviewer(scenarios: Sequence[TeamScenario], **options: Any) -> SimulatedReviewer:
    """A reviewer that knows the truth."""
    by_key = {scenario.key: scenario for scenario in scenarios}

    def score(request: ReviewRequest, option: str) -> float:
        decision = Decision(option=option, escalate=option == "none")
        return decision_value(by_key[request.proposal.case], decision)

    return SimulatedReviewer(score, **options)


def yes_man() -> SimulatedReviewer:
    """Approves whatever it is shown."""
    return SimulatedReviewer(lambda request, option: 1.0)


def worlds(**options: Any) -> Callable[[TeamScenario], SimulatedOutcomes]:
    return lambda scenario: SimulatedOutcomes(scenario, **options)


CALM = worlds(shock_share=0.0)


@dataclass(kw_only=True)
class Stand:
    """A thread that waits for its reviewer."""

    office: Office
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
        """Answer the live interrupt with anything."""
        return await self.go(Command(resume={(await self.interrupt()).id: value}))

    async def claim(self, values: dict[str, Any], as_node: str) -> Any:
        """Write into the state as if a node had, and play on."""
        await self.graph.aupdate_state(self.config, values, as_node=as_node)
        return await self.go()

    def count(self, table: str) -> int:
        return int(self.office.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.office.log.entries()]

    def is_sound(self) -> bool:
        return verify_chain(self.office.log.entries(), head=self.office.log.head()) is None


@asynccontextmanager
async def stand_at_gate(folder: Path, *, index: int = 0) -> AsyncIterator[Stand]:
    """A thread in a file store that waits at its first proposal (one with a plan)."""
    scenarios = draw_cases(index + 1)
    case, clock, path = scenarios[index], HandClock(), folder / f"store{index}.db"
    async with open_office(path, key=KEY, clock=clock, nonce=counted_nonces()) as office:
        seating = make_seating(scenarios)
        (episode,) = await play_governed([case], office, seating, AbsentReviewer(), CALM)
        assert episode.status == "waiting"
        voices = Voices(seating, case, episode.thread, office.ledger)
        yield Stand(
            office=office,
            clock=clock,
            case=case,
            thread=episode.thread,
            graph=office.graph(tuple(case.seats)),
            context=make_full_context(case, episode.thread, 0, office, voices, CALM(case)),
            path=path,
        )
