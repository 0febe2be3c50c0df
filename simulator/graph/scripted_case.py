"""A graph that LangGraph's own tools can play: scripted experts on a generated case, no model and no key.

Studio and `langgraph dev` give a graph its input alone, so the agents are made inside; the team's graph runs
as a subgraph, step by step. Its state holds what seats say, never what a case is worth.
"""

from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from roles.registry import ROLES
from roles.team import SPECIALISTS
from scenarios.team import PlanGame, generate
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating, make_context
from simulator.graph.team_graph import team_graph

MOST_TOKENS = 20_000  # of an answer; a token of these experts is a character


class ScriptedInput(TypedDict, total=False):
    """Coordinates of a case. Example: {"index": 7, "difficulty": 2}"""

    index: Annotated[int, "number of the training case, from 0"]
    difficulty: Annotated[int, "1 to 10"]


class ScriptedPlay(ScriptedInput, total=False):
    """The case and what was said about it."""

    case: str
    reports: dict[str, str]
    decision: str
    votes: dict[str, str]


ScriptedGraph = CompiledStateGraph[ScriptedPlay, None, ScriptedInput, ScriptedPlay]


async def play(state: ScriptedPlay) -> ScriptedPlay:
    """Play the case with experts who report, decide and vote."""
    case = generate("train", 0, state.get("index", 0), state.get("difficulty", 1))
    chat, game = PlainChat(), PlanGame(case)
    seating = Seating(
        team={role: role for role in ROLES},
        engine=ScriptedEngine(chat, seeded=oracle_team([case])),
        chat=chat,
        sampling=Sampling(temperature=0.0, max_completion_tokens=MOST_TOKENS),
        stream="studio",
        max_turns=MAX_TURNS,
        roles=ROLES,
    )
    agents = seating.make_agents(case, game, case.key)
    final = await team_graph(SPECIALISTS).ainvoke(
        seating.open_case(case, game, rounds=1), context=make_context(game, agents)
    )
    return ScriptedPlay(
        case=case.key,
        reports={seat: report["text"] for seat, report in final["reports"].items()},
        decision=final["decision"]["text"],
        votes={seat: vote["text"] for seat, vote in final["votes"].items()},
    )


def open_scripted() -> ScriptedGraph:
    """Return the graph: `langgraph.json` names this function."""
    graph = StateGraph(ScriptedPlay, input_schema=ScriptedInput)
    graph.add_node("play", play)
    graph.add_edge(START, "play")
    graph.add_edge("play", END)
    return graph.compile()
