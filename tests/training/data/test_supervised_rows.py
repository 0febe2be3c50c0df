"""Supervised rows are the engine's transcripts: same ids, contexts masked, own words trained."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from tiny_models import DIFFICULTIES, tiny_chat, tiny_tokenizer

from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS
from scenarios import team
from scenarios.registry import FAMILIES
from simulator.agents.solo import play_solo
from simulator.agents.tool_calls import format_tool_call
from simulator.chat import Chat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.records import Trajectory
from training.data.demonstrations import (
    IGNORED_LABEL,
    TokenRow,
    demonstration_row,
    difficulty_of,
    expert_episode,
    role_scenario,
    seat_row,
    supervised_rows,
    team_scenario,
)

NUM_CASES = 6


def speak_in_turn(chat: Chat, texts: Sequence[str]) -> ScriptedEngine:
    """An engine whose one policy reads out `texts`, one a turn."""
    lines = iter(texts)
    return ScriptedEngine(chat, {"expert": lambda _: next(lines)})


def as_row(trajectory: Trajectory) -> TokenRow:
    return TokenRow(token_ids=trajectory.token_ids, loss_mask=trajectory.loss_mask)


def expert_texts(role: str, index: int) -> list[str]:
    scenario = role_scenario(role, "train", 0, index, DIFFICULTIES)
    steps = FAMILIES[role].demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    return [s.text if s.call is None else format_tool_call(s.text, s.call) for s in steps]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("index", range(NUM_CASES))
def test_a_demonstration_row_is_the_engines_transcript(role: str, index: int) -> None:
    chat, scenario = tiny_chat(), role_scenario(role, "train", 0, index, DIFFICULTIES)
    play = play_solo(
        scenario,
        policy="expert",
        engine=speak_in_turn(chat, expert_texts(role, index)),
        chat=chat,
        sampling=Sampling(max_completion_tokens=200),
        session="s",
        max_turns=10,
    )
    episode = asyncio.run(play)
    assert episode.verdict.reward == 1.0
    assert demonstration_row(FAMILIES[role], scenario, chat) == as_row(episode.trajectory)


@pytest.mark.parametrize("index", range(NUM_CASES))
def test_seat_rows_are_the_engines_transcripts(index: int) -> None:
    chat, scenario = tiny_chat(), team_scenario("train", 0, index, DIFFICULTIES)
    reports, _, decision, votes = expert_episode(scenario)

    def speaker(role: str) -> ScriptedEngine:
        lines = [decision.text] if role == RECONCILER else [reports[role].text, votes[role].text]
        return speak_in_turn(chat, lines)

    speakers = {role: speaker(role) for role in ROLES}

    class Table:
        async def complete(self, request: CompletionRequest) -> Completion:
            role = request.session.rpartition("/")[2]
            return await speakers[role].complete(request)

        def end_session(self, session: str) -> None:
            pass

    team_of_experts = dict.fromkeys(ROLES, "expert")
    sampling = Sampling(max_completion_tokens=200)
    (episode,) = asyncio.run(play_episodes([scenario], team_of_experts, Table(), chat, sampling))
    assert episode.error is None
    for role in ROLES:
        assert seat_row(role, scenario, chat) == as_row(episode.trajectories[role])


def spans(row: TokenRow) -> list[tuple[int, tuple[int, ...]]]:
    """(mask, ids) of every run of equal mask, in order."""
    found: list[tuple[int, list[int]]] = []
    for token, bit in zip(row.token_ids, row.loss_mask, strict=True):
        if not found or found[-1][0] != bit:
            found.append((bit, []))
        found[-1][1].append(token)
    return [(bit, tuple(ids)) for bit, ids in found]


def test_a_row_decodes_to_the_expected_text_in_the_expected_spans() -> None:
    scenario = role_scenario("cto", "train", 0, 0, DIFFICULTIES)
    row = demonstration_row(FAMILIES["cto"], scenario, tiny_chat())
    texts = [(bit, tiny_tokenizer().decode(list(ids))) for bit, ids in spans(row)]
    opening = f"<|system|>CTO. Tools measure describe<|end|><|user|>{scenario.brief}<|end|><|assistant|>"
    words = expert_texts("cto", 0)
    assert [bit for bit, _ in texts] == [0, 1] * len(words)
    assert texts[0] == (0, opening)
    assert [text for bit, text in texts if bit] == [f"{text}<|end|>" for text in words]
    for option, (_, observation) in zip("ABC", texts[2::2], strict=True):
        found = scenario.truth["figures"][option]
        figures = f"cost {found['cost']} latency {found['latency']} availability {found['availability']}"
        assert observation == f"<|tool|>{figures}<|end|><|assistant|>"


def test_a_seat_row_trains_report_and_vote_only() -> None:
    chat, scenario = PlainChat(), team_scenario("train", 0, 3, DIFFICULTIES)
    reports, decision_brief, decision, votes = expert_episode(scenario)
    final = team.parse_decision(scenario, decision.text)
    opening = chat.open(ROLES["coo"], scenario.seats["coo"].brief, with_tools=False)
    assert spans(seat_row("coo", scenario, chat)) == [
        (0, opening),
        (1, (*chat.encode(reports["coo"].text), chat.end_id)),
        (0, chat.ask(team.vote_brief(final))),
        (1, (*chat.encode(votes["coo"].text), chat.end_id)),
    ]
    assert spans(seat_row(RECONCILER, scenario, chat)) == [
        (0, chat.open(ROLES[RECONCILER], decision_brief, with_tools=False)),
        (1, (*chat.encode(decision.text), chat.end_id)),
    ]


def test_labels_are_ignored_exactly_where_the_mask_is_zero() -> None:
    row = TokenRow(token_ids=(3, 8, 5, 41, 1), loss_mask=(0, 0, 1, 0, 1))
    assert row.as_dict() == {"input_ids": [3, 8, 5, 41, 1], "labels": [-100, -100, 5, -100, 1]}
    for role in ROLES:
        for scripted in supervised_rows(
            role, tiny_chat(), num_rows=6, first_row=0, seat_share=0.5, seed=0, difficulties=DIFFICULTIES
        ):
            columns = scripted.as_dict()
            ignored = [label == IGNORED_LABEL for label in columns["labels"]]
            assert ignored == [bit == 0 for bit in scripted.loss_mask]
            assert columns["labels"][-1] == tiny_chat().end_id


def rows_of(role: str, first_row: int, num_rows: int, seat_share: float = 0.34) -> list[TokenRow]:
    return list(
        supervised_rows(
            role,
            tiny_chat(),
            num_rows=num_rows,
            first_row=first_row,
            seat_share=seat_share,
            seed=0,
            difficulties=DIFFICULTIES,
        )
    )


@pytest.mark.parametrize("role", ["cost", RECONCILER])
def test_row_numbers_are_stable(role: str) -> None:
    """Rows from 20 on are the same whether or not those before were asked for, and no row comes twice."""
    together = rows_of(role, 0, 40)
    assert rows_of(role, 20, 20) == together[20:]
    assert rows_of(role, 0, 40) == together
    assert len(set(together)) == 40


@pytest.mark.parametrize(
    ("seat_share", "num_seats"), [(0.0, 0), (0.25, 10), (0.33, 13), (0.5, 20), (1.0, 40)]
)
def test_the_seats_share_is_kept_in_every_stretch(seat_share: float, num_seats: int) -> None:
    """Seat rows of a specialist carry two own spans and no tools; family rows announce their tools."""
    tools = tiny_chat().open(ROLES["cto"], "x", with_tools=True)[:4]
    seats = [row.token_ids[:4] != tools for row in rows_of("cto", 0, 40, seat_share)]
    assert sum(seats) == num_seats
    assert abs(sum(seats[:20]) - num_seats / 2) <= 1


def test_experts_of_different_practices_write_the_demonstrations() -> None:
    cases = [team_scenario("train", 0, index, DIFFICULTIES) for index in range(60)]
    words = {expert_episode(case)[0][role].text.split()[0] for case in cases for role in SPECIALISTS}
    decisions = {expert_episode(case)[2].text.split()[0] for case in cases}
    assert words == set(team.HOUSE.reports)
    assert decisions == set(team.HOUSE.decisions)


def test_difficulties_take_turns() -> None:
    assert [difficulty_of(index, (1, 2, 5)) for index in range(7)] == [1, 2, 5, 1, 2, 5, 1]
    assert role_scenario("coo", "train", 0, 5, (1, 2, 5)).difficulty == 5
    assert team_scenario("train", 0, 4, (1, 2, 5)).difficulty == 2
