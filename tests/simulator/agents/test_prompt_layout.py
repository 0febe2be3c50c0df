"""Prompts begin with what is the same in every case; a role's name stands for one system text."""

import itertools
from pathlib import Path

import pytest
from northbank import seat_northbank
from tiny_models import tiny_tokenizer

from roles.base import Role
from roles.team import RECONCILER, SPECIALISTS, TEAM_ROLES
from scenarios.base import Style
from scenarios.team import PlanGame, PlayableCase, generate, with_seat
from scenarios.written.written_case import read_case
from simulator.engines.embedded.hf_chat import HFChat

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "city-permits.md"
WORDS_ALONE = """\
title: Where do we store our data?
budget: 30
options: {A: {name: Our rooms, base: 10}, B: {name: A cloud, base: 12}}
seats: {cto: {facts: The rooms are full.}, cost: {facts: The cloud is dear.}}
"""


def common_ids(prompts: list[tuple[int, ...]]) -> int:
    """How many ids all prompts begin with."""
    return sum(1 for _ in itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False)))


@pytest.mark.parametrize("style", ["full", "short"])
@pytest.mark.parametrize("role", SPECIALISTS)
def test_a_seats_prompts_share_its_system_text(role: str, style: Style) -> None:
    chat = HFChat(tiny_tokenizer())
    games = [PlanGame(generate("train", 0, index, 1 + index), style) for index in range(4)]
    prompts = []
    for game in games:
        prompts.append(chat.open(game.prompt_role(role), game.write_report_brief(role), with_tools=False))
    shared = chat.decode(prompts[0][: common_ids(prompts)])
    assert games[0].prompt_role(role).mandate in shared
    for game, prompt in zip(games, prompts, strict=True):
        assert game.write_report_brief(role) in chat.decode(prompt).removeprefix(shared[:-40])


def test_a_name_stands_for_one_system_text(tmp_path: Path) -> None:
    """Chats remember openings by the role's name: two texts under one name would be mixed up."""
    file = tmp_path / "case.yaml"
    file.write_text(WORDS_ALONE)
    cases: list[PlayableCase] = [
        *(generate("train", 0, index, 1 + index, offers) for index, offers in enumerate((1, 2, 1))),
        with_seat(seat_northbank(), "legal", {"veto": ["B"]}),
        read_case(EXAMPLE),
        read_case(file),
    ]
    known: dict[str, Role] = {}
    styles: list[Style] = ["full", "short"]
    for case, (style, questions, tools) in itertools.product(
        cases, itertools.product(styles, (0, 1, 2), (True, False))
    ):
        game = PlanGame(case, style, questions)
        for seat in (*case.seats, RECONCILER):
            role = game.prompt_role(seat, with_tools=tools)
            assert known.setdefault(role.name, role) == role
    assert len({role.mandate for role in known.values() if "+full" in role.name}) > 2 * len(TEAM_ROLES)
