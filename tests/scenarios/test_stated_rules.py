"""Every rule of readers and tools stands in the full-form prompt, or costs nothing but its field."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from roles import limits, part, reconcile, team
from roles.base import MAX_ANSWER_CHARS, Role
from roles.registry import ROLES
from roles.team import RECONCILER, Decision, Offer, Report, Vote
from scenarios import suites
from scenarios.base import Style
from scenarios.jobs import allocation, architecture, bill, job, threats, tradeoff
from scenarios.suites import DealProposal, NegotiationGame
from scenarios.team import PlanGame, generate
from scenarios.team.experts import best_report
from scenarios.team.offers import MAX_NAME_CHARS
from scenarios.team.single import SingleGame
from scenarios.team.texts.full import WORDS_RULES
from scenarios.team.verdicts import verify_report
from simulator.agents import agent
from simulator.graph.runner import MAX_TURNS
from simulator.tool_calls import BadToolCallError, parse_tool_calls
from training.config.rl_config import GrpoConfig
from training.data.single_agent import single_role

CASE = generate("train", 0, 7, 3)
GAME = PlanGame(CASE)
SEAT = "cto"
JOBS = [one.ROLE for one in (allocation, architecture, bill, threats, tradeoff)]
PROMPTS: Mapping[str, str] = {
    "seat": GAME.prompt_role(SEAT).mandate,
    "seat asked": GAME.write_ask(SEAT, {"option": "A", "cost_at_most": 15}),
    "seat votes": GAME.write_vote_brief(None, SEAT, {}),
    "seat without tools": GAME.prompt_role(SEAT, with_tools=False).mandate,
    RECONCILER: GAME.prompt_role(RECONCILER).mandate,
    "alone": SingleGame(CASE).prompt_role.mandate,
    "part": ROLES["cto"].mandate,
    "funding": ROLES[RECONCILER].mandate,
    "words": WORDS_RULES,
    "suite": NegotiationGame.mandates[False],
}
# (rule, prompt that must state it, its words)
STATED = [
    *((f"length of a message, {name}", name, f"{MAX_ANSWER_CHARS:,} characters") for name in PROMPTS
      if name not in ("seat asked", "seat votes", "words")),
    *((f"other keys, {name}", name, "no keys but those named, none of them twice") for name in PROMPTS
      if name not in ("seat asked", "seat votes", "words")),
    *((f"calls in a turn, {name}", name, f"at most {limits.MAX_CALLS_PER_TURN} of at most")
      for name in ("seat", RECONCILER, "alone", "part", "funding")),
    *((f"length of a call, {name}", name, f"of at most {limits.MAX_CALL_CHARS:,} characters each")
      for name in ("seat", RECONCILER, "alone", "part", "funding")),
    *((f"length of a result, {name}", name, f"first {limits.MAX_OBSERVATION_CHARS:,} characters of a result")
      for name in ("seat", RECONCILER, "alone", "part", "funding")),
    *((f"turns, {name}", name, f"stop you after {limits.SURE_TURNS} turns on one message")
      for name in ("seat", RECONCILER, "alone", "part", "funding")),
    *((f"refused calls, {name}", name, "at a call that is refused")
      for name in ("seat", RECONCILER, "alone", "part", "funding")),
    ("calls of a seat", "seat", f"tools {limits.MAX_SEAT_CALLS} times in all"),
    ("calls of ReconcileGPT", RECONCILER, f"tools {limits.MAX_SEAT_CALLS} times in all"),
    ("calls alone", "alone", f"tools {limits.MAX_LONE_CALLS} times in all"),
    ("calls for a part", "part", f"tools {part.MAX_CALLS} times in all"),
    ("calls for funding", "funding", f"tools {reconcile.MAX_CALLS} times in all"),
    ("figures of an offer", "seat", f"whole k$ within {team.MOST_FIGURE:,}"),
    ("figures of a part", "part", f"within {team.MOST_FIGURE:,}"),
    ("empty offer", "seat", "(at least one)"),
    ("offers per option", "seat", "at most 1 per option"),
    ("malformed offers", "seat", "malformed is struck out alone"),
    ("note", "seat", f"cut at {team.MAX_NOTE_WORDS} words ({team.MAX_NOTE_CHARS} characters)"),
    ("keys of a reply", "seat asked", "the keys of an offer in your report"),
    ("amount that is asked for", RECONCILER, f"whole k$, from 0 to {team.MOST_FIGURE:,}"),
    ("questions", RECONCILER, "you may ask one seat for another offer, once"),
    ("conflicts", RECONCILER, f"of which {team.MAX_CONFLICTS} are kept"),
    ("reason of a decision", RECONCILER, f"of which {team.MAX_REASON_CHARS} characters are kept"),
    ("fields left out", RECONCILER, "both may be left out"),
    ("one offer of a seat", RECONCILER, "at most one of each seat"),
    ("reason of a plan alone", "alone", f"({team.MAX_REASON_CHARS} characters are kept)"),
    ("reason of a vote", "seat votes", f"first {team.MAX_REASON_WORDS} words of a reason, at most "
     f"{team.MAX_NOTE_CHARS} characters"),
    ("conflicts of a seat twice", "funding", "in any order, each once"),
    ("upgrade twice", "part", "each at most once"),
    ("names of parts", "words", f"{MAX_NAME_CHARS} characters of a name"),
    ("words of a statement", "suite", f"the others read {suites.MAX_WORDS} words"),
]  # fmt: skip


@pytest.mark.parametrize(("prompt", "words"), [one[1:] for one in STATED], ids=[one[0] for one in STATED])
def test_a_rule_is_stated(prompt: str, words: str) -> None:
    assert words in PROMPTS[prompt]


@pytest.mark.parametrize("role", JOBS, ids=lambda role: role.name)
def test_jobs_state_the_same_rules(role: Role) -> None:
    assert limits.ANSWER_RULES in role.mandate
    assert limits.TOOL_RULES in role.mandate
    assert f"{job.MAX_CALLS} times" in role.mandate


def test_the_simulator_keeps_the_limits_that_prompts_state() -> None:
    assert min(GrpoConfig().max_turns, MAX_TURNS) >= limits.SURE_TURNS
    assert vars(agent)["MAX_OBSERVATION_CHARS"] == limits.MAX_OBSERVATION_CHARS
    assert vars(agent)["MAX_SEAT_CALLS"] == limits.MAX_SEAT_CALLS
    call = '<tool_call>{"name": "sheet", "arguments": {}}</tool_call>'
    assert len(parse_tool_calls(call * limits.MAX_CALLS_PER_TURN)) == limits.MAX_CALLS_PER_TURN
    with pytest.raises(BadToolCallError):
        parse_tool_calls(call * (limits.MAX_CALLS_PER_TURN + 1))


@pytest.mark.parametrize("schema", [Report, Offer, Decision, Vote])
def test_every_limit_of_a_schema_is_in_the_list_above(schema: type[Any]) -> None:
    """A new limit of a field must be stated, or cut what is longer: add it to this list, and say which."""
    known = {
        "Report": {"offers": 50, "needs": 10, "veto": 10, "note": 400},  # struck out singly; the note is cut
        "Offer": {"part": 20},  # costs its offer; no option has as many upgrades
        "Decision": {"fund": 20, "conflicts": 10, "reason": 600},  # one label a seat; the rest is cut
        "Vote": {"reason": 400},  # cut
    }
    fields = schema.model_json_schema()["properties"]
    found = {
        name: value.get("maxItems", value.get("maxLength"))
        for name, value in fields.items()
        if "maxItems" in value or "maxLength" in value
    }
    assert found == known[schema.__name__]


def sound_report() -> dict[str, Any]:
    return best_report(CASE, SEAT, "full").model_dump()


def read(report: dict[str, Any]) -> dict[str, Any]:
    found = GAME.read_report(SEAT, json.dumps(report))
    assert found is not None
    return found


BAD_OFFERS: list[Any] = [
    {"option": "A", "part": [], "cost": 0, "worth": 0},
    {"option": "A", "part": ["x"], "cost": "9", "worth": 1},
    {"option": "A", "part": ["x"], "cost": 9, "worth": 10**9},
    {"option": "A", "part": ["x"], "cost": 9, "worth": 1, "note": "cheap"},
    {"option": "A"},
    None,
]


@pytest.mark.parametrize("offer", BAD_OFFERS)
def test_a_wrong_offer_costs_itself(offer: Any) -> None:
    sound = sound_report()
    expected = read(sound)
    found = read({**sound, "offers": [offer, *sound["offers"]]})
    assert expected["offers"]
    assert not expected["false_claims"]
    assert {**found, "false_claims": []} == expected
    assert len(found["false_claims"]) == 1


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"needs": "A"}, ["offers", "veto", "note"]),
        ({"needs": ["A"] * 11}, ["offers", "veto", "note"]),
        ({"veto": [3]}, ["offers", "needs", "note"]),
        ({"confidence": 1.0}, ["offers", "needs", "veto", "note"]),
    ],
)
def test_a_wrong_field_of_a_report_costs_its_field(change: dict[str, Any], kept: list[str]) -> None:
    sound = sound_report()
    expected, found = read(sound), read({**sound, **change})
    assert {name: found[name] for name in kept} == {name: expected[name] for name in kept}
    assert found["false_claims"]
    verdict = verify_report(CASE, SEAT, json.dumps({**sound, **change}))
    assert (verdict.reward, verdict.failure) == (0.0, "schema"), "the seat's own verdict pays for none"


@pytest.mark.parametrize("note", ["word " * 300, "x" * 900, None, 7, ["a"]])
def test_a_note_of_another_form_costs_nothing_else(note: Any) -> None:
    sound = sound_report()
    found = read({**sound, "note": note})
    assert {**found, "note": ""} == {**read(sound), "note": ""}
    assert len(found["note"].split()) <= team.MAX_NOTE_WORDS
    assert len(found["note"]) <= team.MAX_NOTE_CHARS


@pytest.mark.parametrize(
    "change", [{"reason": "x" * 999}, {"reason": None}, {"conflicts": "A"}, {"conflicts": [1, "b"] * 9}]
)
def test_words_of_a_decision_cost_nothing_else(change: dict[str, Any]) -> None:
    sound = {"option": "A", "fund": [], "escalate": False}
    found = GAME.read_decision({SEAT: read(sound_report())}, json.dumps({**sound, **change}))
    assert found is not None
    assert {name: found[name] for name in sound} == sound


def test_words_of_votes_plans_and_statements_are_cut() -> None:
    long = "word " * 2_000
    assert GAME.read_vote(json.dumps({"vote": "object", "reason": long})) is not None
    plan = {"option": "none", "parts": {}, "escalate": True, "reason": long}
    assert SingleGame(CASE).read(json.dumps(plan))[1].escalate
    assert len(DealProposal.model_validate({"deal": {"A": 1}, "say": long}).say) == 4_000


@pytest.mark.parametrize("style", ["short"])
def test_short_prompts_state_none_of_it(style: Style) -> None:
    game = PlanGame(CASE, style)
    roles: list[Role] = [game.prompt_role(seat) for seat in (*CASE.seats, RECONCILER)]
    for role in [*roles, single_role(style)]:
        assert len(role.mandate) < 220
        assert "characters" not in role.mandate
