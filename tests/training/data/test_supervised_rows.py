"""Supervised rows are the engine's transcripts: same ids, contexts masked, own words trained."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tiny_models import DIFFICULTIES, tiny_chat, tiny_tokenizer

from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Style, ToolCall
from scenarios.registry import SHORT_FAMILIES
from scenarios.team import PlanGame
from scenarios.team.demonstrations import ExpertMessage, draw_report_habit, hold_meeting
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS
from scenarios.team.frontier import budget_band
from simulator.agents.agent import Agent
from simulator.agents.solo import play_solo
from simulator.chat import Chat, PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import MAX_TURNS, play_episodes
from simulator.records import Trajectory
from simulator.tool_calls import format_tool_call
from training.config.run_config import DataConfig, RunConfig
from training.data.demonstrations import (
    IGNORED_LABEL,
    TokenRow,
    demonstration_row,
    difficulty_of,
    role_scenario,
    seat_row,
    supervised_rows,
    team_scenario,
)
from training.stages.sft import warn_of_long_turns

NUM_CASES = 6
CONFIG = RunConfig(data=DataConfig(difficulties=DIFFICULTIES))


def speak_in_turn(chat: Chat, texts: Sequence[str]) -> ScriptedEngine:
    """An engine whose one policy reads out `texts`, one a turn."""
    lines = iter(texts)
    return ScriptedEngine(chat, {"expert": lambda _: next(lines)})


def as_row(trajectory: Trajectory) -> TokenRow:
    return TokenRow(token_ids=trajectory.token_ids, loss_mask=trajectory.loss_mask)


def expert_texts(role: str, index: int) -> list[str]:
    scenario = role_scenario(role, "train", 0, index, DIFFICULTIES)
    steps = SHORT_FAMILIES[role].demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
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
        families=SHORT_FAMILIES,
    )
    episode = asyncio.run(play)
    assert episode.verdict.reward == pytest.approx(1.0)
    assert demonstration_row(SHORT_FAMILIES[role], scenario, chat) == as_row(episode.trajectory)


@pytest.mark.parametrize("style", ["short", "full"])
@pytest.mark.parametrize("index", range(NUM_CASES))
def test_seat_rows_are_the_engines_transcripts(index: int, style: Style) -> None:
    """Reports with their tool calls, questions, replies, decision and votes of a meeting, played for real."""
    chat = tiny_chat() if style == "short" else PlainChat()
    game = PlanGame(team_scenario(DataConfig(), "train", index, DIFFICULTIES), style, questions=1)
    for role, said in hold_meeting(game).messages.items():
        prompted, reports = game.prompt_role(role), dict[str, Any]()

        def call_tool(call: ToolCall, role: str = role, reports: Any = reports) -> str:
            return game.call_tool(role, call, reports)

        agent = Agent(
            role=ROLES[role],
            policy="expert",
            engine=speak_in_turn(chat, write_lines(said)),
            chat=chat,
            sampling=Sampling(max_completion_tokens=5000),
            session="s",
            call_tool=call_tool if prompted.tools else None,
            prompt_role=prompted,
            max_turns=MAX_TURNS,
        )
        for one in said:
            reports |= one.reports
            asyncio.run(agent.answer(one.brief))
        assert seat_row(role, game, chat) == as_row(agent.trajectory())


@pytest.mark.parametrize("style", ["short", "full"])
def test_the_graph_plays_a_meeting_with_a_question_as_it_is_demonstrated(style: Style) -> None:
    """Who says what the experts say is asked what they were asked: the same token rows."""
    chat = tiny_chat() if style == "short" else PlainChat()
    make_game = partial(PlanGame, style=style, questions=1)
    num_asked = 0
    for index in range(NUM_CASES):
        case = team_scenario(DataConfig(), "train", index, DIFFICULTIES)
        meeting = hold_meeting(make_game(case))
        engine = ScriptedEngine(chat, {role: read_out(said) for role, said in meeting.messages.items()})
        team, sampling = {role: role for role in ROLES}, Sampling(max_completion_tokens=5000)
        play = play_episodes([case], team, engine, chat, sampling, make_game=make_game)
        (episode,) = asyncio.run(play)
        assert episode.error is None
        num_asked += len(episode.asked)
        assert len(episode.asked) == len(meeting.messages[RECONCILER]) - 1
        for role, trajectory in episode.trajectories.items():
            if role == RECONCILER or meeting.drafts[role] == meeting.decision:
                assert as_row(trajectory) == seat_row(role, make_game(case), chat)
    assert num_asked > 0


def read_out(said: Sequence[ExpertMessage]) -> Callable[[str], str]:
    """A policy that says what the role says in the meeting, a turn after the other."""
    lines = iter(write_lines(said))
    return lambda transcript: next(lines)


def write_lines(said: Sequence[ExpertMessage]) -> list[str]:
    steps = [step for one in said for step in one.steps]
    return [s.text if s.call is None else format_tool_call(s.text, s.call) for s in steps]


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
    row = demonstration_row(SHORT_FAMILIES["cto"], scenario, tiny_chat())
    texts = [(bit, tiny_tokenizer().decode(list(ids))) for bit, ids in spans(row)]
    opening = f"<|system|>CTO. Tools describe measure<|end|><|user|>{scenario.brief}<|end|><|assistant|>"
    words = expert_texts("cto", 0)
    assert [bit for bit, _ in texts] == [0, 1] * len(words)
    assert texts[0] == (0, opening)
    assert [text for bit, text in texts if bit] == [f"{text}<|end|>" for text in words]
    call = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
    observation = SHORT_FAMILIES["cto"].call_tool(scenario, call)
    assert texts[2] == (0, f"<|tool|>{observation}<|end|><|assistant|>")


def test_a_seat_row_trains_report_and_vote_only() -> None:
    chat, game = PlainChat(), PlanGame(team_scenario(DataConfig(), "train", 3, DIFFICULTIES), "short")
    meeting = hold_meeting(game)
    report, vote = meeting.messages["coo"]
    assert vote.brief == game.write_vote_brief(meeting.drafts["coo"], "coo", meeting.reports)
    assert spans(seat_row("coo", game, chat)) == [
        (0, chat.open(game.prompt_role("coo"), game.write_report_brief("coo"), with_tools=False)),
        (1, (*chat.encode(report.steps[-1].text), chat.end_id)),
        (0, chat.ask(vote.brief)),
        (1, (*chat.encode(vote.steps[-1].text), chat.end_id)),
    ]
    brief = game.write_decision_brief(meeting.reports)
    assert spans(seat_row(RECONCILER, game, chat)) == [
        (0, chat.open(game.prompt_role(RECONCILER), brief, with_tools=False)),
        (1, (*chat.encode(meeting.messages[RECONCILER][-1].steps[-1].text), chat.end_id)),
    ]


def test_labels_are_ignored_exactly_where_the_mask_is_zero() -> None:
    row = TokenRow(token_ids=(3, 8, 5, 41, 1), loss_mask=(0, 0, 1, 0, 1))
    assert row.as_dict() == {"input_ids": [3, 8, 5, 41, 1], "labels": [-100, -100, 5, -100, 1]}
    for role in ROLES:
        for scripted in supervised_rows(CONFIG, role, tiny_chat(), num_rows=6, first_row=0, seat_share=0.5):
            columns = scripted.as_dict()
            ignored = [label == IGNORED_LABEL for label in columns["labels"]]
            assert ignored == [bit == 0 for bit in scripted.loss_mask]
            assert columns["labels"][-1] == tiny_chat().end_id


def rows_of(role: str, first_row: int, num_rows: int, seat_share: float = 0.34) -> list[TokenRow]:
    rows = supervised_rows(
        CONFIG, role, tiny_chat(), num_rows=num_rows, first_row=first_row, seat_share=seat_share
    )
    return list(rows)


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


def test_experts_of_different_habits_write_the_demonstrations() -> None:
    """In short style nobody is `fair`: what is fair is at times no step, and steps alone are listed."""
    cases = [team_scenario(DataConfig(), "train", index, DIFFICULTIES) for index in range(60)]
    games = [PlanGame(case, "short") for case in cases]
    meetings = [hold_meeting(game) for game in games]
    said = [(role, said) for one in meetings for role, said in one.messages.items()]
    words = {own[0].steps[-1].text.split()[0] for role, own in said if role != RECONCILER}
    assert words == set(REPORT_HABITS) - {"fair", "measured", "searched"}  # which no demonstration shows
    funded = {own[-1].steps[-1].text.split()[0] for role, own in said if role == RECONCILER}
    assert funded == set(FUNDING_HABITS)
    assert {json.loads(own[-1].steps[-1].text)["vote"] for role, own in said if role != RECONCILER} == {
        "accept",
        "object",
    }
    for one in meetings:
        assert not any(report is None or report["false_claims"] for report in one.reports.values())


def test_experts_lean_towards_what_the_budget_asks_for() -> None:
    """Where money is tight more experts are strict than where it is ample, and fewer easy."""
    drawn: dict[str, list[str]] = {"tight": [], "ample": []}
    for index in range(150):
        game = PlanGame(team_scenario(DataConfig(), "train", index, DIFFICULTIES), "short")
        for seat in game.case.seats:
            band = budget_band(game.case, seat)
            if band in drawn:
                drawn[band].append(draw_report_habit(game, seat, random.Random(f"{index}/{seat}")))
    share = {band: {h: found.count(h) / len(found) for h in REPORT_HABITS} for band, found in drawn.items()}
    assert share["tight"]["strict"] > 1.5 * share["ample"]["strict"]
    assert share["ample"]["easy"] > 1.5 * share["tight"]["easy"]


def test_difficulties_take_turns() -> None:
    assert [difficulty_of(index, (1, 2, 5)) for index in range(7)] == [1, 2, 5, 1, 2, 5, 1]
    assert role_scenario("coo", "train", 0, 5, (1, 2, 5)).difficulty == 5
    assert team_scenario(DataConfig(), "train", 4, (1, 2, 5)).difficulty == 2


def test_demonstrations_that_play_would_cut_off_are_told_with_the_key_to_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Turns of 2 and 3 tokens alone, of 4 at the table: each kind has a limit of its own."""
    alone = TokenRow(token_ids=tuple(range(8)), loss_mask=(0, 1, 1, 0, 1, 1, 1, 0))
    seat = TokenRow(token_ids=tuple(range(5)), loss_mask=(0, 1, 1, 1, 1), at_table=True)
    assert (alone.longest_turn, seat.longest_turn) == (3, 4)
    enough = RunConfig().changed(grpo__max_completion_tokens=3, marl__max_completion_tokens=4)
    warn_of_long_turns(enough, "cto", [alone, seat])
    assert not caplog.records
    warn_of_long_turns(enough.changed(marl__max_completion_tokens=3), "cto", [alone, seat, seat])
    warn_of_long_turns(enough.changed(grpo__max_completion_tokens=2), "cto", [alone, seat])
    told = "cto: {} would cut off a turn of {} demonstrations; begin again with {} or more"
    assert caplog.messages == [
        told.format("marl.max_completion_tokens 3", "2 of 2", 4),
        told.format("grpo.max_completion_tokens 2", "1 of 1", 3),
    ]


@pytest.mark.parametrize("at_table", [False, True])
def test_rows_know_whether_they_show_the_seat(at_table: bool) -> None:
    chat = tiny_chat()
    rows = supervised_rows(CONFIG, "cto", chat, num_rows=2, first_row=0, seat_share=float(at_table))
    assert [row.at_table for row in rows] == [at_table] * 2
