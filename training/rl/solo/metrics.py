"""Metrics of a step of GRPO: pure functions of scored groups."""

import statistics
from collections.abc import Mapping, Sequence

from evaluation.audit.answers import audit_score
from evaluation.audit.subjects import SUBJECTS
from scenarios.base import Family
from simulator.agents.solo import SoloEpisode
from training.rl.records import ScoredSoloGroup


def measure_rollouts(groups: Sequence[ScoredSoloGroup]) -> dict[str, float]:
    """Reward, exactness and feasibility side by side, every reward part, limits, lengths, signal, variety.

    Groups that a fault took are not among `groups`. Nothing gives {}.
    """
    episodes = [episode for group in groups for episode in group.played]
    if not episodes:
        return {}
    rewards = [parts for group in groups for parts in group.parts]
    totals = [parts["total"] for parts in rewards]
    trajectories = [episode.trajectory for episode in episodes]
    metrics = {
        "verified": statistics.fmean(episode.verdict.reward for episode in episodes),
        "exact": statistics.fmean(episode.verdict.exact for episode in episodes),
        "feasible": statistics.fmean(episode.verdict.feasible for episode in episodes),
        "truncated": statistics.fmean(one.truncated for one in trajectories),
        "tool_calls": statistics.fmean(one.num_tool_calls for one in trajectories),
        "tool_failures": statistics.fmean(
            one.num_tool_calls - one.num_valid_tool_calls for one in trajectories
        ),
        "turns": statistics.fmean(len(one.turns) for one in trajectories),
        "own_tokens": statistics.fmean(sum(one.loss_mask) for one in trajectories),
        "groups_with_signal": statistics.fmean(max(one.totals) > min(one.totals) for one in groups),
        "groups_all_wrong": statistics.fmean(max(one.totals) <= 0 for one in groups),
        "surprise": mean_surprise(episodes),
        "answer_variety": answer_variety(groups),
    }
    for part in rewards[0]:
        metrics[f"reward/{part}"] = statistics.fmean(parts[part] for parts in rewards)
    roles: dict[str, list[float]] = {}
    for episode in episodes:
        roles.setdefault(episode.scenario.role, []).append(episode.verdict.reward)
    if len(roles) > 1:
        metrics |= {f"verified/{role}": statistics.fmean(found) for role, found in roles.items()}
    return metrics | _by_difficulty(episodes, totals)


def mean_surprise(episodes: Sequence[SoloEpisode]) -> float:
    """Minus the mean sampling log-probability of own tokens, in nats: an unbiased estimate of the entropy."""
    values = [-v for episode in episodes for turn in episode.trajectory.turns for v in turn.logprobs]
    return statistics.fmean(values) if values else 0.0


def answer_variety(groups: Sequence[ScoredSoloGroup]) -> float:
    """Share of different final texts among different scenarios, mean over places in the groups; in (0, 1].

    Agreement within a group is what training is for; the same answer to every case is not.
    """
    by_place = zip(*(group.played for group in groups), strict=True)
    answers = [[episode.trajectory.final_text for episode in one] for one in by_place]
    return statistics.fmean(len(set(one)) / len(one) for one in answers)


def _by_difficulty(episodes: Sequence[SoloEpisode], totals: Sequence[float]) -> dict[str, float]:
    found: dict[int, list[tuple[float, float]]] = {}
    for episode, total in zip(episodes, totals, strict=True):
        found.setdefault(episode.scenario.difficulty, []).append((total, episode.verdict.reward))
    metrics = {}
    for difficulty, pairs in sorted(found.items()):
        metrics[f"difficulty_{difficulty}/reward"] = statistics.fmean(total for total, _ in pairs)
        metrics[f"difficulty_{difficulty}/verified"] = statistics.fmean(verified for _, verified in pairs)
    return metrics


def group_outcomes(groups: Sequence[ScoredSoloGroup]) -> list[tuple[int, float]]:
    """Difficulty and mean verified reward of every group."""
    return [
        (group.scenario.difficulty, statistics.fmean(one.verdict.reward for one in group.played))
        for group in groups
    ]


def spread(count: int, most: int) -> list[int]:
    """At most `most` places of 0 to count - 1, evenly spread."""
    step = max(1.0, count / most)
    return [int(i * step) for i in range(min(count, most))]


def audit_episodes(episodes: Sequence[SoloEpisode], families: Mapping[str, Family]) -> list[float]:
    """Return what the families' independent scorers say of the answers, 0 to 1; [] where a family has none.

    The scorers read the rules out of full texts, so a family in short style has none.
    """
    names = {episode.scenario.family for episode in episodes}
    if any(name not in SUBJECTS or SUBJECTS[name].family is not families[name] for name in names):
        return []
    return [
        audit_score(SUBJECTS[one.scenario.family], one.scenario, one.trajectory.final_text)
        for one in episodes
    ]
