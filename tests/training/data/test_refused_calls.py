"""Demonstrations with a refused call: the tool refuses, the right call follows, the slip is not learnt."""

import random
from functools import partial

import pytest
from tiny_models import DIFFICULTIES

from roles.registry import ROLES
from scenarios.base import Step, Style, ToolCall, ToolError
from scenarios.registry import families
from scenarios.team import PlanGame
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.offers import list_upgrades
from simulator.chat import PlainChat
from training.config.model_config import ModelConfig
from training.config.run_config import DataConfig, RunConfig, SftConfig
from training.data.demonstrations import (
    TokenRow,
    answer_call,
    demonstration_row,
    refuse_one_call,
    role_scenario,
    seat_row,
    supervised_rows,
    team_scenario,
)

CHAT = PlainChat()
KNOWN = {("red",), ("blue",), ("red", "blue")}


def measure(*names: str, text: str = "") -> Step:
    return Step(text=text, call=ToolCall(name="measure", arguments={"option": "A", "part": list(names)}))


def tell(call: ToolCall) -> str:
    """A tool that knows red, blue and both."""
    if tuple(call.arguments["part"]) not in KNOWN:
        raise ToolError("no such part")
    return "cost 3"


def texts_of(row: TokenRow) -> tuple[str, str]:
    """Return the whole transcript, and the words that are learnt."""
    own = tuple(token for token, mask in zip(row.token_ids, row.loss_mask, strict=True) if mask)
    return CHAT.decode(row.token_ids), CHAT.decode(own)


def test_one_call_is_refused_and_then_made_right() -> None:
    steps = (measure("red", text="first"), measure("blue", text="3, then"), Step(text="done"))
    places = set()
    for seed in range(20):
        shown = refuse_one_call(steps, tell, random.Random(seed))
        (at,) = [number for number, step in enumerate(shown) if step.is_slip]
        slip, right = shown[at], shown[at + 1]
        assert slip.text == steps[at].text
        assert right == Step(text="", call=steps[at].call)
        assert slip.call is not None
        assert slip.call.arguments["option"] == "A"
        assert answer_call(slip, tell) == "error: no such part"
        assert (*shown[:at], *shown[at + 2 :]) == (*steps[:at], *steps[at + 1 :])
        places.add(at)
    assert places == {0, 1}


def test_steps_without_a_call_that_can_be_refused_stay_as_they_are() -> None:
    steps = (Step(text="", call=ToolCall(name="sheet", arguments={})), Step(text="done"))
    assert refuse_one_call(steps, lambda _: "told", random.Random(0)) == steps
    listed = (measure("red"), Step(text="done"))
    assert refuse_one_call(listed, lambda _: "told", random.Random(0)) == listed


def test_a_slip_that_the_tool_answers_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"does not refuse: .*'red'.*cost 3"):
        answer_call(Step(text="", call=measure("red").call, is_slip=True), tell)


@pytest.mark.parametrize("role", ["cto", "coo", "risk", "cost"])
def test_a_role_sees_a_refusal_and_does_not_learn_the_slip(role: str) -> None:
    num_refused = 0
    for index in range(12):
        scenario = role_scenario(role, "train", 0, index, DIFFICULTIES, "full")
        family = families("full")[role]
        row = demonstration_row(family, scenario, CHAT, refused_share=1.0)
        plain = demonstration_row(family, scenario, CHAT)
        text, own = texts_of(row)
        if row == plain:
            continue
        num_refused += 1
        refused, after = text.split("<|tool|>error: part must list upgrades")
        wrong = refused.rpartition("<tool_call>")[2]
        assert wrong not in own
        assert own.count("<tool_call>") == texts_of(plain)[1].count("<tool_call>")
        assert after.partition("<|assistant|>")[2].startswith("<tool_call>")
        assert texts_of(plain)[0].endswith(own[-40:])
    assert num_refused >= 10


@pytest.mark.parametrize("seat", ["cto", "coo", "risk", "cost"])
def test_a_seat_sees_names_of_another_option_refused(seat: str) -> None:
    num_from_elsewhere = 0
    for index in range(12):
        case = team_scenario(DataConfig(), "train", index, DIFFICULTIES)
        game = PlanGame(case, "full")
        message = hold_meeting(game).messages[seat][0]
        call_tool = partial(game.call_tool, seat, reports=message.reports)
        for slip in refuse_one_call(message.steps, call_tool, random.Random(index)):
            if slip.is_slip and slip.call is not None:
                own = list_upgrades(game.case, seat, slip.call.arguments["option"])
                num_from_elsewhere += any(name not in own for name in slip.call.arguments["part"])
    assert num_from_elsewhere >= 3


@pytest.mark.parametrize("style", ["short", "full"])
def test_the_share_says_how_many_demonstrations_have_one(style: Style) -> None:
    rows = {
        share: list(
            supervised_rows(
                RunConfig(
                    data=DataConfig(difficulties=(1,)), model=ModelConfig(prompts=style),
                    sft=SftConfig(refused_share=share),
                ),
                "cto", CHAT, num_rows=40, first_row=0, seat_share=0.5,
            )
        )
        for share in (0.0, 0.5, 1.0)
    }  # fmt: skip
    counts = {share: sum("error: " in texts_of(row)[0] for row in found) for share, found in rows.items()}
    assert counts[0.0] == 0
    if style == "full":
        assert counts[1.0] == 40
        assert 10 <= counts[0.5] <= 30


def test_reconcilegpt_has_no_names_to_mistake() -> None:
    game = PlanGame(team_scenario(DataConfig(), "train", 0, (1,)), "full")
    assert "reconcile" in ROLES
    assert seat_row("reconcile", game, CHAT, refused_share=1.0) == seat_row("reconcile", game, CHAT)
