"""Writes all that the seats of a played bench case read and wrote as Markdown.

Nothing is asked again: replies come from the bench's folder, given the same `--api` as there.

    python -m benchmarks.engines.episode_prompts runs/bench/smollm2 team/test/2026/0/1 \\
        --seat all=openai:MODEL@http://127.0.0.1:8000/v1 --api max_completion_tokens=256
"""

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

from emads.bench.cases import list_cases
from emads.bench.run import REPLIES, play_table
from emads.seats.players import read_api_options
from emads.team import Team, load_team
from roles.errors import UserError
from scenarios.team import TeamScenario
from simulator.chat import MessageChat, Said, read_opening
from simulator.records import Episode
from simulator.reward import score_episode
from simulator.tool_calls import OPEN


def main() -> None:
    """Play one case from its stored replies and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("key")
    parser.add_argument("--seat", action="append", required=True)
    parser.add_argument("--api", action="append", default=[])
    given = parser.parse_args()
    options = read_api_options([*given.api, f"replies={given.folder / REPLIES}"])
    team = load_team(seats=given.seat, api=options)
    (scenario,) = [case for case in list_cases() if case.key == given.key]
    if not isinstance(scenario, TeamScenario):
        raise UserError(f"{given.key} is no case of the table")
    with team.open([scenario]) as opened:
        episode = asyncio.run(play_table(team, opened, scenario))
    print("\n".join(describe_episode(scenario, episode, team)))


def describe_episode(scenario: TeamScenario, episode: Episode, team: Team) -> Iterator[str]:
    """Lines of the case, of every seat's transcript, and of the verdict."""
    chat = MessageChat()
    yield f"Case `{scenario.key}`.\n"
    for seat, trajectory in episode.trajectories.items():
        yield f"### {seat}\n"
        for said in chat.read(trajectory.token_ids):
            yield from describe_message(said)
        yield f"Ended by: {trajectory.ended_by}.\n"
    verdict = score_episode(scenario, episode, team.weights)
    yield f"V {verdict.value:.3f}, R {verdict.reward:.3f}: {verdict.explanation}."


def describe_message(said: Said) -> Iterator[str]:
    """One message under its speaker's name."""
    if said.speaker == "system":
        role, with_tools = read_opening(said.text)
        yield from _fence("system", role.mandate)
        if with_tools:
            yield f"Tools, by the protocol: {', '.join(tool.name for tool in role.tools)}.\n"
        return
    name = "assistant, calling a tool" if said.speaker == "assistant" and OPEN in said.text else said.speaker
    yield from _fence(name, said.text)


def _fence(name: str, text: str) -> Iterator[str]:
    mark = "````" if "```" in text else "```"
    yield f"**{name}**\n\n{mark}text\n{text}\n{mark}\n"


if __name__ == "__main__":
    main()
