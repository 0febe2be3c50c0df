"""Players by seat, prices and limits are read from words; each refusal names the value and the remedy."""

from pathlib import Path

import pytest

from emads.seats.players import ApiPlayer, Price, RunPlayer, ScriptPlayer, read_api_options, read_seats
from emads.team import check_habits
from roles.errors import UserError

URL = "http://127.0.0.1:8000/v1"


def test_every_form_is_read(tmp_path: Path) -> None:
    seats = read_seats(
        [
            f"cto=openai:meta/llama-3:free@{URL}",
            "risk=scripted:lean",
            "all=scripted",
            "coo=run:runs/demo/sft",
            "cost=run:runs/demo",
        ]
    )
    assert seats.player_of("cto") == ApiPlayer("meta/llama-3:free", URL)
    assert seats.player_of("risk") == ScriptPlayer("lean")
    assert seats.player_of("coo") == RunPlayer(Path("runs/demo"), "sft")
    assert seats.player_of("cost") == RunPlayer(Path("runs/demo"), "marl")
    assert seats.player_of("reconcile") == seats.player_of("a seat of a plug-in") == ScriptPlayer()
    assert str(seats.player_of("cto")) == f"openai:meta/llama-3:free@{URL}"
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "config.yaml").touch()  # a run whose name is that of a stage
    assert read_seats([f"all=run:{tmp_path}/sft"]).others == RunPlayer(tmp_path / "sft", "marl")


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("cto", ["'cto'", "SEAT=PLAYER", "openai:MODEL@URL"]),
        ("ctoo=scripted", ["unknown seat 'ctoo'", "did you mean 'cto'"]),
        ("cto=gpt", ["unknown player 'gpt'", "openai:MODEL@URL"]),
        ("cto=openai:gpt", ["'openai:gpt'", "openai:MODEL@http://host:8000/v1"]),
        ("cto=openai:gpt@host:8000", ["'host:8000'", "http://host:8000/v1"]),
        ("cto=openai:gpt@http://me:word@h/v1", ["environment variable"]),
        ("cto=run:", ["'run:'", "run:runs/demo/marl"]),
        ("cto=scripted:", ["'scripted:'", "scripted:lean"]),
    ],
)
def test_a_wrong_seat_names_value_and_remedy(word: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_seats([word])
    assert [part for part in parts if part not in str(caught.value)] == []


def test_seats_are_named_once_and_none_stays_empty() -> None:
    with pytest.raises(UserError, match="'cto' twice"):
        read_seats(["cto=scripted", "cto=scripted:lean"])
    with pytest.raises(UserError, match=r"nobody plays 'coo': add --seat coo=.* or --seat all="):
        read_seats(["cto=scripted"]).player_of("coo")


def test_a_habit_must_be_one_of_its_seat() -> None:
    check_habits(read_seats(["all=scripted:greedy"]))
    check_habits(read_seats(["all=scripted:lean", "reconcile=scripted:exact"]))
    with pytest.raises(UserError, match=r"unknown habit of reconcile 'lean' \(known: exact"):
        check_habits(read_seats(["all=scripted:lean"]))


def test_prices_come_from_options_and_are_never_guessed() -> None:
    options = read_api_options(["price.m=3,12", "price.other=1,1", "max_cost=1"])
    assert options.prices == {"m": Price(input=3, output=12), "other": Price(input=1, output=1)}
    assert options.settle(ApiPlayer("m", URL)).price(1_000_000, 500_000) == pytest.approx(9.0)
    options.check([ApiPlayer("m", URL)])
    with pytest.raises(UserError, match=r"max_cost=1 needs the price of 'new': add --api price.new=INPUT"):
        options.check([ApiPlayer("new", URL)])


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("price.m", ["'price.m'", "price.MODEL=INPUT,OUTPUT"]),
        ("price.m=1", ["'price.m=1'", "price.MODEL=INPUT,OUTPUT"]),
        ("price=1,-2", ["'price=1,-2'"]),
        ("price.m=nan,1", ["'price.m=nan,1'"]),
        ("max_cost=0", ["max_cost=0", "above 0"]),
        ("max_cost=much", ["'max_cost=much'", "max_cost=5"]),
        ("concurency=3", ["'concurency'", "did you mean 'concurrency'"]),
        ("concurrency", ["'concurrency'", "KEY=VALUE"]),
        ("tools=none", ["'none'", "native, text"]),
    ],
)
def test_a_wrong_option_names_value_and_remedy(word: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_api_options([word])
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_setting_out_of_range_and_a_missing_key_are_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--api concurrency=0"):
        read_api_options(["concurrency=0"]).settle(ApiPlayer("m", URL))
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(UserError, match="'NO_KEY' holds no API key"):
        read_api_options(["key_env=NO_KEY"]).settle(ApiPlayer("m", URL))
    monkeypatch.setenv("THIS_KEY", "sk-1")
    options = read_api_options(["key_env.m=THIS_KEY"])
    key = options.settle(ApiPlayer("m", URL)).api_key
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert options.settle(ApiPlayer("n", URL)).api_key is None
