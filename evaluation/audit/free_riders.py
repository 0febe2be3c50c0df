"""V9: measures what a seat that does not work does to the team reward.

The other axioms of V9 (order of roles, duplicates, silence, bad consensus) are in
tests/simulator/graph/test_reward.py.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from evaluation.audit.probe_list import TEAM
from evaluation.audit.records import Row, Tier
from roles.team import SPECIALISTS
from scenarios.team import (
    TeamScenario,
    expert_decision,
    expert_report,
    expert_vote,
    generate,
    parse_decision,
    parse_report,
)
from scenarios.team.case import favourite
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

WEIGHTS = TeamRewardWeights()
DIFFICULTIES = (1, 3, 5)
ACCEPT = '{"vote": "accept"}'

Ride = Callable[[TeamScenario, str, Mapping[str, str], random.Random], str]


def _write(pick: str, flag: int, veto: Sequence[str] = ()) -> str:
    return json.dumps({"pick": pick, "flag": flag, "veto": list(veto)})


def report_loudly(scenario: TeamScenario, _role: str, _honest: Mapping[str, str], rng: random.Random) -> str:
    """Any option, pressed for as hard as can be."""
    return _write(rng.choice(scenario.options), 3)


def block_others(scenario: TeamScenario, role: str, _honest: Mapping[str, str], _rng: random.Random) -> str:
    """Return the own favourite, and a veto against everything else."""
    own = favourite(scenario.seats[role])
    return _write(own, 3, [option for option in scenario.options if option != own])


def echo_neighbour(_scenario: TeamScenario, role: str, honest: Mapping[str, str], _rng: random.Random) -> str:
    """Return the report of the next seat."""
    return honest[SPECIALISTS[(SPECIALISTS.index(role) + 1) % len(SPECIALISTS)]]


RIDES: Mapping[str, Ride] = {
    "silent": lambda *_: "",
    "always the same": lambda *_: _write("A", 0),
    "loud": report_loudly,
    "blocks all others": block_others,
    "echoes another": echo_neighbour,
}


def play_reports(scenario: TeamScenario, reports: Mapping[str, str], rider: str | None = None) -> float:
    """Team reward of these reports with an expert's decision and votes; the rider accepts whatever comes."""
    heard = {role: parse_report(scenario, text) for role, text in reports.items()}
    decision = expert_decision(scenario.options, heard, "priority").text
    parsed = parse_decision(scenario, decision)
    votes = {
        role: ACCEPT if role == rider else expert_vote(scenario, role, parsed).text for role in SPECIALISTS
    }
    episode = Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=dict(reports),
        decision=decision,
        votes=votes,
    )
    return score_episode(scenario, episode, WEIGHTS).reward


def probe_free_riders(tier: Tier, seed: int) -> Row:
    """V9: the mean team reward falls with every kind of rider, its seat drawn anew in every case."""
    losses: dict[str, list[float]] = {name: [] for name in RIDES}
    for index in range(tier.team_episodes):
        scenario = generate("validation", seed, index, DIFFICULTIES[index % len(DIFFICULTIES)])
        rng = random.Random(f"audit/V9/{seed}/{scenario.key}")
        honest = {role: expert_report(scenario, role, "stakes").text for role in SPECIALISTS}
        earned = play_reports(scenario, honest)
        rider = rng.choice(SPECIALISTS)
        for name, ride in RIDES.items():
            shirked = {**honest, rider: ride(scenario, rider, honest, rng)}
            losses[name].append(earned - play_reports(scenario, shirked, rider))
    means = {name: fmean(values) for name, values in losses.items()}
    least = min(means, key=means.__getitem__)
    return Row(
        probe="V9",
        family=TEAM,
        counts=f"{tier.team_episodes} cases x {len(RIDES)} kinds of free riders",
        worst=f"least loss {means[least]:.2f} ({least})",
        breaches=[f"{name} costs the team {loss:.3f}" for name, loss in means.items() if loss <= 0],
    )
