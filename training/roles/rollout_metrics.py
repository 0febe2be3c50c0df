"""Metrics of one batch of rollouts: pure functions of episodes and rewards."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.audit.answers import audit_score
from evaluation.audit.subjects import SUBJECTS
from scenarios.base import Family
from simulator.agents.solo import SoloEpisode

Parts = Mapping[str, float]


def measure_rollouts(
    episodes: Sequence[SoloEpisode], rewards: Sequence[Parts], group_size: int
) -> dict[str, float]:
    """Reward, exactness and feasibility side by side, every reward part, limits, lengths, signal, variety.

    `episodes` stand group by group; groups that a fault took are not among them. Nothing gives {}.
    """
    if not episodes:
        return {}
    totals = [parts["total"] for parts in rewards]
    groups = [totals[i : i + group_size] for i in range(0, len(totals), group_size)]
    trajectories = [episode.trajectory for episode in episodes]
    own_tokens = [sum(one.loss_mask) for one in trajectories]
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
        "own_tokens": statistics.fmean(own_tokens),
        "groups_with_signal": statistics.fmean(max(group) > min(group) for group in groups),
        "groups_all_wrong": statistics.fmean(max(group) <= 0 for group in groups),
        "surprise": mean_surprise(episodes),
        "answer_variety": answer_variety(episodes, group_size),
    }
    for part in rewards[0]:
        metrics[f"reward/{part}"] = statistics.fmean(parts[part] for parts in rewards)
    for name, value in _by_difficulty(episodes, totals).items():
        metrics[name] = value
    return metrics


def mean_surprise(episodes: Sequence[SoloEpisode]) -> float:
    """Minus the mean sampling log-probability of own tokens, in nats: an unbiased estimate of the entropy."""
    values = [-v for episode in episodes for turn in episode.trajectory.turns for v in turn.logprobs]
    return statistics.fmean(values) if values else 0.0


def answer_variety(episodes: Sequence[SoloEpisode], group_size: int) -> float:
    """Share of different final texts among different scenarios, mean over places in the groups; in (0, 1].

    Agreement within a group is what training is for; the same answer to every case is not.
    """
    shares = []
    for place in range(min(group_size, len(episodes))):
        answers = [episode.trajectory.final_text for episode in episodes[place::group_size]]
        shares.append(len(set(answers)) / len(answers))
    return statistics.fmean(shares)


def _by_difficulty(episodes: Sequence[SoloEpisode], totals: Sequence[float]) -> dict[str, float]:
    found: dict[int, list[tuple[float, float]]] = {}
    for episode, total in zip(episodes, totals, strict=True):
        found.setdefault(episode.scenario.difficulty, []).append((total, episode.verdict.reward))
    metrics = {}
    for difficulty, pairs in sorted(found.items()):
        metrics[f"difficulty_{difficulty}/reward"] = statistics.fmean(total for total, _ in pairs)
        metrics[f"difficulty_{difficulty}/verified"] = statistics.fmean(verified for _, verified in pairs)
    return metrics


def group_outcomes(episodes: Sequence[SoloEpisode], group_size: int) -> list[tuple[int, float]]:
    """Difficulty and mean verified reward of every group."""
    groups = [episodes[i : i + group_size] for i in range(0, len(episodes), group_size)]
    return [
        (group[0].scenario.difficulty, statistics.fmean(one.verdict.reward for one in group))
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


def training_columns(episodes: Sequence[SoloEpisode | None], filler_id: int) -> dict[str, list[Any]]:
    """Prompt, completion (observations included), logprobs and own-token mask of every episode.

    None, an episode of a group that is left out, becomes one masked token: it is in no sum.
    """
    columns: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
    for episode in episodes:
        ids: Sequence[int] = (filler_id, filler_id)
        logprobs: Sequence[float] = (0.0, 0.0)
        mask: Sequence[int] = (0, 0)
        start = 1
        if episode is not None:
            one = episode.trajectory
            ids, logprobs, mask = one.token_ids, one.sampling_logprobs, one.loss_mask
            start = len(one.turns[0].context_ids)
        columns["prompt_ids"].append(list(ids[:start]))
        columns["completion_ids"].append(list(ids[start:]))
        columns["logprobs"].append(list(logprobs[start:]))
        columns["env_mask"].append(list(mask[start:]))
    return columns
