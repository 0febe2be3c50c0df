"""Plays of a bench, a line each as soon as it is done; their card, as JSON and Markdown; two compared."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from emads.bench.cases import BANDS, CASES_PER_CELL, CELLS, TABLE
from evaluation.stats.intervals import mean_interval, paired_interval, paired_permutation_p
from roles.errors import UserError
from simulator.engines.openai.chat_engine import EndpointUsage
from simulator.export.atomic_files import write_atomic
from simulator.line_files import LineFile, read_lines

CARD, PAGE, PLAYS = "card.json", "card.md", "plays.jsonl"
FORMAT = "emads-bench/1"
KINDS = tuple(CASES_PER_CELL)
SET_SIZE = sum(cell.num_cases for cell in CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlay:
    """One case as it was played.

    Example: BenchPlay(key="cto/test/2026/0/1", kind="cto", band="easy", difficulty=1, score=1.0,
                       reward=1.0, legal={"cto alone": (1, 1)}, turns=4, tool_calls=3,
                       ended_by={"cto": "answer"}, usage=EndpointUsage())
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    key: str
    kind: str  # a role family, or "table"
    band: str
    difficulty: int
    score: float  # alone: the verdict's reward; at the table: V of the decision
    reward: float  # alone: the same; at the table: the team reward R
    legal: dict[str, tuple[int, int]]  # "cto report" -> answers that could be read, answers asked for
    turns: int
    tool_calls: int
    ended_by: dict[str, str]  # seat -> "answer", or the limit that ended its work
    usage: EndpointUsage  # of API models


class PlayFile:
    """The plays of one bench folder.

    Example: PlayFile(folder / "plays.jsonl").read()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._adapter = TypeAdapter(BenchPlay)

    def read(self) -> list[BenchPlay]:
        """Return all plays; a last line that a kill cut short is left out, no file holds nothing.

        Raises:
            UserError: a damaged line.
        """
        plays = []
        for number, line in enumerate(read_lines(self.path), start=1):
            try:
                plays.append(self._adapter.validate_json(line))
            except ValidationError:
                raise UserError(
                    f"{self.path}:{number} is no play; delete the line to play it again"
                ) from None
        return plays

    def add(self, play: BenchPlay) -> None:
        """Append a play; it is on disk when this returns."""
        with LineFile(self.path) as file:
            file.add(self._adapter.dump_json(play))


def build_card(
    plays: Sequence[BenchPlay],
    *,
    set_name: str,
    label: str,
    seats: Mapping[str, str],
    cost: float | None,
    wall_s: float,
    versions: Mapping[str, str],
    num_cases: int,
) -> dict[str, Any]:
    """Return the card of these plays. `cost`: with failed requests; None where a price is unknown.

    `num_cases`: those that were asked for; the ones that no engine could finish are missing, not scored 0.

    Raises:
        UserError: nothing was played.
    """
    if not plays:
        raise UserError("no case was played to its end: there is nothing to put on a card")
    usage, by_key = EndpointUsage(), {play.key: play for play in plays}
    for play in plays:
        usage = usage.joined(play.usage)
    rewards = [play.reward for play in plays if play.kind == TABLE]
    return {
        "format": FORMAT,
        "set": set_name,
        "label": label,
        "seats": dict(seats),
        "num_cases": {"whole_set": SET_SIZE, "asked": num_cases, "played": len(plays)},
        "score": {
            name: asdict(mean_interval([by_key[key].score for key in keys]))
            for name, keys in _group(by_key).items()
        },
        "team_reward": asdict(mean_interval(rewards)) if rewards else None,
        "legal": _sum_legal(plays),
        "ended_by": dict(Counter(reason for play in plays for reason in play.ended_by.values())),
        "turns_per_case": sum(play.turns for play in plays) / len(plays),
        "tool_calls_per_case": sum(play.tool_calls for play in plays) / len(plays),
        "usage": asdict(usage),
        "cost": cost,
        "wall_s": round(wall_s, 1),
        "versions": dict(versions),
    }


def write_card(folder: Path, card: Mapping[str, Any]) -> Path:
    """Write card.json and card.md; return the path of the second."""
    write_atomic(folder / CARD, json.dumps(card, indent=1) + "\n")
    write_atomic(folder / PAGE, render_card(card))
    return folder / PAGE


def render_card(card: Mapping[str, Any]) -> str:
    """Return the card as a Markdown page."""
    counts, usage = card["num_cases"], card["usage"]
    scope = f"{counts['played']} cases"
    if card["set"].startswith("bench") and counts["played"] < counts["whole_set"]:
        scope += f" of {counts['whole_set']}: not to be quoted as the set's result"
    lines = [
        f"# Bench of {card['label']}",
        "",
        f"{card['set'].capitalize()}, {scope}. `emads` {card['versions'].get('emads', 'unknown')},"
        f" {card['wall_s']:,.0f} s.",
        "",
        "| cases | n | score [95 % interval] |",
        "|---|---:|---:|",
    ]
    lines += [f"| {name} | {one['n']} | {_show(one)} |" for name, one in card["score"].items()]
    if card["team_reward"] is not None:
        lines.append(f"| table, team reward R | {card['team_reward']['n']} | {_show(card['team_reward'])} |")
    lines += [
        "",
        "Score alone: the verifier's reward of the role's own family. At the table: V, worth of the funded"
        " plan (0: a plan made blind, 1: the optimum).",
        "",
        "| answers | legal | asked for |",
        "|---|---:|---:|",
    ]
    lines += [
        f"| {name} | {one['read'] / one['asked']:.3f} | {one['asked']} |"
        for name, one in card["legal"].items()
    ]
    lines += [
        "",
        f"{card['turns_per_case']:.1f} turns and {card['tool_calls_per_case']:.1f} tool calls a case."
        f" API models: {usage['num_requests']:,} requests, {usage['prompt_tokens']:,} tokens in,"
        f" {usage['completion_tokens']:,} out,"
        f" cost {'unknown (no price given)' if card['cost'] is None else format(card['cost'], '.4f')}.",
        "",
        "| seat | player |",
        "|---|---|",
        *(f"| {seat} | `{player}` |" for seat, player in card["seats"].items()),
        "",
    ]
    return "\n".join(lines)


def compare_cards(before: Path, after: Path) -> list[str]:
    """Return the comparison of two bench folders, paired by case, as lines of text.

    Raises:
        UserError: no card there, other set versions, or no case in common.
    """
    cards = [read_card(folder) for folder in (before, after)]
    sets = [card["set"] for card in cards]
    if sets[0] != sets[1]:
        raise UserError(
            f"{before} is of {sets[0]} and {after} of {sets[1]}: only plays of one set are compared"
        )
    plays = [{play.key: play for play in PlayFile(folder / PLAYS).read()} for folder in (before, after)]
    keys = [key for key in plays[0] if key in plays[1]]
    if not keys:
        raise UserError(f"{before} and {after} have no case in common; play both with the same --cases")
    lines = [
        f"A  {cards[0]['label']}",
        f"B  {cards[1]['label']}",
        f"{sets[0]}, {len(keys)} cases that both played",
        "",
        f"{'cases':<16}{'n':>5}{'A':>8}{'B':>8}   B - A [95 % interval]      p",
    ]
    for name, chosen in _group({key: plays[0][key] for key in keys}).items():
        first, second = ([played[key].score for key in chosen] for played in plays)
        change = paired_interval(second, first)
        lines.append(
            f"{name:<16}{len(chosen):>5}{sum(first) / len(first):>8.3f}{sum(second) / len(second):>8.3f}"
            f"   {change:+.3f}"
            f"  {paired_permutation_p(second, first):.4f}"
        )
    return lines


def read_card(folder: Path) -> dict[str, Any]:
    """Return the card of a bench folder.

    Raises:
        UserError: no card there.
    """
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text())
        if card["format"] != FORMAT:
            raise ValueError(card["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"no bench card in {folder}; make one with `emads bench --out {folder}`") from None
    return card


def _group(plays: Mapping[str, BenchPlay]) -> dict[str, list[str]]:
    """Return the keys of all cases, of each kind and of each kind and band, as far as they were played."""
    groups: dict[str, list[str]] = {"all": list(plays)}
    groups["roles alone"] = [key for key, play in plays.items() if play.kind != TABLE]
    for kind in KINDS:
        groups[kind] = [key for key, play in plays.items() if play.kind == kind]
        for band in BANDS:
            groups[f"{kind} {band}"] = [key for key in groups[kind] if plays[key].band == band]
    return {name: keys for name, keys in groups.items() if keys}


def _sum_legal(plays: Sequence[BenchPlay]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for play in plays:
        for name, (read, asked) in play.legal.items():
            one = found.setdefault(name, {"read": 0, "asked": 0})
            one["read"] += read
            one["asked"] += asked
    return dict(sorted(found.items()))


def _show(interval: Mapping[str, float]) -> str:
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"
