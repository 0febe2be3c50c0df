"""A meeting with Legal at the table, played by scripted experts: graph, prompt, report, decision, reward.

python examples/legal/play.py [FOLDER FOR THE MINUTES]
"""

import asyncio
import sys
from pathlib import Path

from legal_role import ROLE
from legal_seat import seat_legal

from evaluation.minutes.minutes import minutes_file, render_minutes
from evaluation.pages import write_page
from roles.registry import ROLES
from scenarios.team import generate
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from simulator.graph.team_graph import list_edges, team_graph
from simulator.reward import TeamRewardWeights, score_episode


def main(folder: Path | None) -> None:
    """Play one case and print where Legal appears; write its minutes into `folder`."""
    roles = {**ROLES, ROLE.name: ROLE}
    case = seat_legal(generate("test", seed=0, index=2, difficulty=1))
    chat = PlainChat()
    experts = oracle_team([case], report_habit="easy", funding_habit="exact")
    (episode,) = asyncio.run(
        play_episodes(
            [case],
            {role: role for role in list_roles(case)},
            ScriptedEngine(chat, seeded=experts),
            chat,
            Sampling(max_completion_tokens=2000),
            roles=roles,
        )
    )
    weights = TeamRewardWeights()
    verdict = score_episode(case, episode, weights)
    edges = [
        f"{one} -> {other}"
        for one, other, _ in list_edges(team_graph(tuple(case.seats)))
        if "legal" in (one, other)
    ]
    print(f"graph:    {', '.join(edges)}")
    print(f"prompt:   {chat.decode(episode.trajectories['legal'].turns[0].context_ids)}")
    print(f"report:   {' '.join(episode.reports['legal'].split())}")
    print(f"decision: {' '.join(episode.decision.split())}")
    print(f"vote:     {episode.votes['legal']}")
    print(f"reward:   {verdict.reward:.3f} ({verdict.explanation})")
    if folder is not None:
        page = folder / minutes_file(episode)
        write_page(
            page,
            render_minutes(
                case,
                episode,
                label="expert team with Legal",
                chat=chat,
                verdict=verdict,
                weights=weights,
                roles=roles,
            ),
        )
        print(f"minutes:  {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
