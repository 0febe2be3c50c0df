"""Scores stored episodes again under other weights of the team reward, by the verifier alone.

Scenarios are generated again from their keys, since truth is never stored. Episodes that ended in an
infrastructure fault and cases that people wrote have no reward; they are counted and left out.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.table import Table

from roles.errors import UserError
from scenarios.keys import regenerate
from scenarios.written.strict_yaml import split_assignments
from simulator.export.episode_files import read_episodes
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, combine_parts, score_episode

MAX_SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One episode under the old weights and under the new ones.

    Example: Rescored(key="team/test/0/7/2", index_in_group=0, verdict=TeamVerdict(...), after=0.71)
    """

    key: str
    index_in_group: int
    verdict: TeamVerdict  # under the old weights
    after: float  # team reward under the new weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescoring:
    """All scored episodes, and how many could not be scored."""

    rows: tuple[Rescored, ...]
    num_faults: int  # infrastructure faults
    num_written: int  # cases that people wrote: no truth


def parse_weights(assignments: Sequence[str]) -> TeamRewardWeights:
    """Return the default weights with `name=number` changes.

    Raises:
        UserError: unknown name, not a number, or negative.
    """
    names = list(TeamRewardWeights.model_fields)
    given: dict[str, float] = {}
    form = "name=number, e.g. consensus=0.5"
    for name, text in split_assignments(assignments, names, option="--weights", what="weight", form=form):
        try:
            given[name] = float(text)
        except ValueError:
            raise UserError(f"--weights {name}={text}: {text!r} is no number, e.g. {name}=0.5") from None
    try:
        return TeamRewardWeights(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise UserError(f"--weights {name}={given[name]}: must be a finite number, 0 or more") from None


def rescore(episodes: Iterable[Episode], before: TeamRewardWeights, after: TeamRewardWeights) -> Rescoring:
    """Score every episode against its scenario, once, and weigh the parts twice.

    Raises:
        UserError: a key that names no scenario, or an episode of other seats than its scenario has.
    """
    make = cache(regenerate)
    rows, num_faults, num_written = [], 0, 0
    for number, episode in enumerate(episodes, 1):
        if episode.scenario_key.startswith("case/"):
            num_written += 1
            continue
        if episode.error is not None:
            num_faults += 1
            continue
        scenario = make(episode.scenario_key)
        others = set(episode.reports) - set(scenario.seats)
        if others:
            raise UserError(
                f"episode {number}, {scenario.key}: it was played with {', '.join(sorted(others))} at the"
                f" table, who has no seat in the generated scenario; score it where the seat was added"
            )
        verdict = score_episode(scenario, episode, before)
        parts = (verdict.value, verdict.consensus, verdict.unresolved, verdict.escalation)
        rows.append(
            Rescored(
                key=scenario.key,
                index_in_group=episode.index_in_group,
                verdict=verdict,
                after=combine_parts(*parts, after),
            )
        )
    return Rescoring(rows=tuple(rows), num_faults=num_faults, num_written=num_written)


def print_rescoring(path: Path, assignments: Sequence[str]) -> None:
    """Print the episodes of a JSONL file under the default weights and under changed ones.

    Raises:
        UserError: wrong weights, no such file, a damaged row, or nothing to score.
    """
    before, after = TeamRewardWeights(), parse_weights(assignments)
    rescoring = rescore(read_episodes(path), before, after)
    lines = summarise_rescoring(rescoring)
    if not rescoring.rows:
        raise UserError(f"{path} holds no episode that can be scored{''.join(f'; {line}' for line in lines)}")
    console = Console(width=None if Console().is_terminal else 140)
    console.print(rescoring_table(rescoring))
    for line in [f"before: {_spell(before)}", f"after:  {_spell(after)}", *lines]:
        console.print(line, highlight=False, markup=False)


def count_new_winners(rows: Sequence[Rescored]) -> tuple[int, int]:
    """(groups whose best episodes are others now, groups of two or more episodes)."""
    groups: dict[str, list[Rescored]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    compared = [group for group in groups.values() if len(group) > 1]
    changed = sum(
        _best({n: row.verdict.reward for n, row in enumerate(group)})
        != _best({n: row.after for n, row in enumerate(group)})
        for group in compared
    )
    return changed, len(compared)


def _best(rewards: Mapping[int, float]) -> set[int]:
    highest = max(rewards.values())
    return {place for place, reward in rewards.items() if reward == highest}


def rescoring_table(rescoring: Rescoring) -> Table:
    """Episodes (the first MAX_SHOWN_ROWS) and their means."""
    rows = rescoring.rows
    hidden = len(rows) - MAX_SHOWN_ROWS
    table = Table(
        title="Team reward and its parts",
        caption=f"{hidden} more episodes not shown" if hidden > 0 else None,
        box=box.SIMPLE_HEAD,
        show_footer=bool(rows),
    )
    values = {
        "V": [row.verdict.value for row in rows],
        "C": [row.verdict.consensus for row in rows],
        "U": [row.verdict.unresolved for row in rows],
        "H": [row.verdict.escalation for row in rows],
        "R before": [row.verdict.reward for row in rows],
        "R after": [row.after for row in rows],
        "change": [row.after - row.verdict.reward for row in rows],
    }
    table.add_column("episode", footer=f"mean of {len(rows)}", no_wrap=True)
    for name, column in values.items():
        spell = "{:+.3f}" if name == "change" else "{:.3f}"
        mean = spell.format(statistics.fmean(column)) if column else ""
        table.add_column(name, footer=mean, justify="right")
    for place, row in enumerate(rows[:MAX_SHOWN_ROWS]):
        numbers = [
            ("{:+.3f}" if name == "change" else "{:.3f}").format(column[place])
            for name, column in values.items()
        ]
        table.add_row(f"{row.key} #{row.index_in_group}", *numbers)
    return table


def summarise_rescoring(rescoring: Rescoring) -> list[str]:
    """List remarks on the table, one line each."""
    changed, compared = count_new_winners(rescoring.rows)
    lines = []
    if compared:
        lines.append(f"best episode of its scenario changed in {changed} of {compared} groups")
    if rescoring.num_faults:
        lines.append(f"left out, infrastructure fault: {rescoring.num_faults}")
    if rescoring.num_written:
        lines.append(f"left out, written by people (no truth is known): {rescoring.num_written}")
    return lines


def _spell(weights: TeamRewardWeights) -> str:
    return " ".join(f"{name} {value:g}" for name, value in weights.model_dump().items())
