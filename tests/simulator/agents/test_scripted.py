"""The scripted engine, the plain chat and the ready policies."""

import asyncio
import json
import math
import random
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from episode_rows import read_episodes
from hostile_policies import SEAT_TEXTS, hostile, silent
from team_tables import CHAT, SAMPLING, SEATS, TEAM, draw_scenarios, oracle_engine

from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Style
from scenarios.hostile import HOSTILE_TEXTS
from scenarios.registry import FAMILIES
from scenarios.team import PlanGame, TeamScenario, decision_value
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.experts import REPORT_HABITS, best_decision
from simulator.agents.scripted_policies import BASELINES, baseline_team, oracle_solo, oracle_team
from simulator.agents.solo import play_solos
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.scripted import ScriptedEngine, ScriptedPolicy, SeededPolicy
from simulator.export.episode_files import episode_to_json, write_lines
from simulator.graph.runner import play_episodes
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode


def request(text: str, *, policy: str = "cto", session: str = "s", limit: int = 100) -> CompletionRequest:
    return CompletionRequest(
        policy=policy,
        session=session,
        prompt_ids=CHAT.encode(text),
        sampling=Sampling(max_completion_tokens=limit),
    )


def play_and_score(
    scenarios: list[TeamScenario], engine: ScriptedEngine, repeats: int = 1, style: Style = "short"
) -> tuple[list[Episode], list[TeamVerdict]]:
    episodes = asyncio.run(
        play_episodes(
            scenarios,
            TEAM,
            engine,
            CHAT,
            SAMPLING,
            num_repeats=repeats,
            make_game=partial(PlanGame, style=style),
        )
    )
    repeated = [scenario for scenario in scenarios for _ in range(repeats)]
    weights = TeamRewardWeights()
    verdicts = [score_episode(s, episode, weights) for s, episode in zip(repeated, episodes, strict=True)]
    return episodes, verdicts


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


# The chat


@pytest.mark.parametrize(
    "text", ["", "B 42", "<|end|>", "\x00\n\u20ac\U0001f600", *HOSTILE_TEXTS, *SEAT_TEXTS]
)
def test_plain_text_round_trips_and_never_becomes_a_marker(text: str) -> None:
    ids = CHAT.encode(text)
    assert CHAT.decode(ids) == text
    assert all(token > 4 for token in ids)


def test_plain_transcripts_are_append_only_text() -> None:
    role = replace(ROLES["cto"], name="new", mandate="You decide.")
    ids = CHAT.open(role, "Bank case.", with_tools=True)
    assert CHAT.decode(ids).startswith("<|system|>CTO. You decide.\nTools: ")
    assert CHAT.decode(ids).endswith("<|end|><|user|>Bank case.<|end|><|assistant|>")
    plain = CHAT.open(role, "x", with_tools=False)
    assert CHAT.decode(plain) == "<|system|>CTO. You decide.<|end|><|user|>x<|end|><|assistant|>"
    assert CHAT.decode((*CHAT.encode("B"), CHAT.end_id)) == "B"
    assert CHAT.decode(CHAT.observe("42")) == "<|tool|>42<|end|><|assistant|>"
    assert CHAT.decode(CHAT.ask("Vote.")) == "<|user|>Vote.<|end|><|assistant|>"


# The engine


def test_a_turn_that_fits_ends_with_the_end_token() -> None:
    engine = ScriptedEngine(CHAT, {"cto": str.upper})
    completion = asyncio.run(engine.complete(request("abc")))
    assert completion.token_ids == (*CHAT.encode("ABC"), CHAT.end_id)
    assert completion.logprobs == (0.0,) * 4
    assert (completion.finish_reason, completion.policy_version) == ("stop", "cto@0")


@pytest.mark.parametrize(("limit", "length", "reason"), [(3, 3, "length"), (4, 4, "stop"), (1, 1, "length")])
def test_token_limit(limit: int, length: int, reason: str) -> None:
    engine = ScriptedEngine(CHAT, {"cto": lambda transcript: "abc"})
    completion = asyncio.run(engine.complete(request("", limit=limit)))
    assert len(completion.token_ids) == len(completion.logprobs) == length
    assert completion.finish_reason == reason


def test_unknown_policy_names_the_nearest() -> None:
    engine = ScriptedEngine(CHAT, {"cost": silent}, seeded={"risk": hostile})
    with pytest.raises(UserError, match="did you mean 'risk'"):
        asyncio.run(engine.complete(request("", policy="rsk")))


def test_chance_depends_on_seed_session_and_turn_only() -> None:
    def number(transcript: str, rng: random.Random) -> str:
        return str(rng.randrange(10**9))

    def speak(seed: int, session: str, text: str) -> tuple[int, ...]:
        engine = ScriptedEngine(CHAT, seeded={"cto": number}, seed=seed)
        asyncio.run(engine.complete(request("another", session="other")))  # no effect on the next
        return asyncio.run(engine.complete(request(text, session=session))).token_ids

    assert speak(0, "s", "ab") == speak(0, "s", "ab")
    assert len({speak(0, "s", "ab"), speak(1, "s", "ab"), speak(0, "t", "ab"), speak(0, "s", "abc")}) == 4


# The policies


@pytest.mark.parametrize("family", FAMILIES)
def test_oracle_plays_every_role_family_to_gold(family: str) -> None:
    scenarios = [FAMILIES[family].generate("train", 0, index, 1 + index % 4) for index in range(12)]
    engine = ScriptedEngine(CHAT, {"oracle": oracle_solo(scenarios)})
    episodes = asyncio.run(
        play_solos(
            scenarios,
            policy="oracle",
            engine=engine,
            chat=CHAT,
            sampling=Sampling(max_completion_tokens=1000),
            stream="",
            max_turns=20,
        )
    )
    for episode in episodes:
        assert episode.verdict.reward == 1.0
        assert episode.trajectory.num_valid_tool_calls == episode.trajectory.num_tool_calls > 0


def test_oracle_refuses_a_strange_transcript() -> None:
    with pytest.raises(ValueError, match="none of the oracle's scenarios"):
        oracle_solo([])("Bank case.")


@pytest.mark.parametrize("style", ["full", "short"])
def test_the_best_habits_reach_their_decision_value(style: Style) -> None:
    """Experts vote rightly and break no limit, so the reward is the value of the decision."""
    scenarios = draw_scenarios(60)
    rewards: dict[str, float] = {}
    for name, (report, funding) in {"best": ("measured", "exact"), "common": ("lean", "return")}.items():
        engine = oracle_engine(scenarios, report_habit=report, funding_habit=funding)
        episodes, verdicts = play_and_score(scenarios, engine, style=style)
        for scenario, episode, verdict in zip(scenarios, episodes, verdicts, strict=True):
            read = read_episode(scenario, episode)
            assert read.decision == best_decision(scenario.public, read.table, funding)
            assert verdict.reward == pytest.approx(
                decision_value(scenario, read.table, read.decision), abs=1e-12
            )
            assert (verdict.consensus, verdict.unresolved, verdict.escalation) == (1.0, 0.0, 0.0)
        rewards[name] = mean([verdict.reward for verdict in verdicts])
    assert rewards["best"] > 0.7
    assert rewards["best"] - rewards["common"] > 0.15


@pytest.mark.parametrize("style", ["full", "short"])
def test_named_habits_are_played_and_drawn_ones_kept(style: Style) -> None:
    """With tools the habit of the first call is that of the report."""
    scenarios = draw_scenarios(8)
    engine = oracle_engine(scenarios, report_habit="easy", funding_habit="exact")
    for episode in play_and_score(scenarios, engine, style=style)[0]:
        assert all(text.startswith("easy\n") for text in episode.reports.values())
        assert episode.decision.startswith("exact\n")
    mixed = play_and_score(scenarios, oracle_engine(scenarios), repeats=4, style=style)[0]
    assert {text.split()[0] for e in mixed for text in e.reports.values()} == set(REPORT_HABITS) - {
        "measured",
        "searched",
    }
    for episode in mixed:
        for role, text in episode.reports.items():
            turns = episode.trajectories[role].turns
            assert turns[0].text.split("\n")[0] == text.split("\n")[0]


@cache
def expert_reward(style: Style) -> float:
    scenarios = draw_scenarios(20)
    engine = oracle_engine(scenarios, report_habit="measured", funding_habit="exact")
    return mean([verdict.reward for verdict in play_and_score(scenarios, engine, style=style)[1]])


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("style", ["full", "short"])
def test_baselines_are_well_formed_and_worse_than_experts(name: str, style: Style) -> None:
    scenarios = draw_scenarios(20)
    engine = ScriptedEngine(CHAT, seeded=baseline_team(scenarios, name))
    episodes, verdicts = play_and_score(scenarios, engine, style=style)
    for scenario, episode in zip(scenarios, episodes, strict=True):
        read = read_episode(scenario, episode)
        assert all(report is not None and not report.false_claims for report in read.table.values())
        assert read.decision is not None
        assert None not in read.votes.values()
    assert mean([v.reward for v in verdicts]) < expert_reward(style) - 0.1


@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_expert_asks_in_play_where_demonstrations_ask(most: int) -> None:
    scenarios = draw_scenarios(12)
    habits = ("measured", "exact")
    experts = oracle_team(scenarios, report_habit=habits[0], funding_habit=habits[1], asks=True)
    make_game = partial(PlanGame, questions=most)
    engine = ScriptedEngine(CHAT, seeded=experts)
    episodes = asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, make_game=make_game))
    for case, episode in zip(scenarios, episodes, strict=True):
        *asked, _decided = hold_meeting(make_game(case), habits=habits).messages[RECONCILER]
        texts = [one.steps[-1].text for one in asked]
        shown = [json.loads(text[text.index("{") :]) for text in texts]
        assert [json.loads(one.ask) for one in episode.asked] == shown
        assert read_episode(case, episode).decision is not None
    num_asked = [len(episode.asked) for episode in episodes]
    assert max(num_asked) == most
    assert most == 0 or 0 in num_asked, "a question that does not pay is not put"


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'greedy'"):
        baseline_team([], "gredy")


@pytest.mark.parametrize("hostile_roles", [(RECONCILER,), SEATS, tuple(TEAM)], ids=["head", "seats", "all"])
def test_hostile_policies_are_data_not_errors(hostile_roles: tuple[str, ...], tmp_path: Path) -> None:
    scenarios = draw_scenarios(20)
    seeded: dict[str, SeededPolicy] = {**oracle_team(scenarios), **dict.fromkeys(hostile_roles, hostile)}
    episodes, verdicts = play_and_score(scenarios, ScriptedEngine(CHAT, seeded=seeded), repeats=2)
    assert all(episode.error is None for episode in episodes)
    assert all(-0.3 - 1e-12 <= verdict.reward <= 1 for verdict in verdicts)
    if RECONCILER in hostile_roles:
        assert all(verdict.reward <= -0.2 for verdict in verdicts)
    write_lines(tmp_path / "hostile.jsonl", map(episode_to_json, episodes))
    assert read_episodes(tmp_path / "hostile.jsonl") == episodes


def test_a_silent_team_gets_the_least() -> None:
    scenarios = draw_scenarios(30)
    policies: dict[str, ScriptedPolicy] = dict.fromkeys(TEAM, silent)
    episodes, verdicts = play_and_score(scenarios, ScriptedEngine(CHAT, policies))
    for scenario, episode, verdict in zip(scenarios, episodes, verdicts, strict=True):
        assert episode.decision == ""
        assert verdict.reward == pytest.approx(-0.2 - 0.1 * (scenario.optimum is None))
