"""Suites that a team plays at its own table: their cases, and what an episode of them shows, by name."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.scoring.outcomes import SuiteOutcome
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from roles.base import Role
from roles.errors import UserError
from roles.team import RECONCILER
from scenarios.suites import hidden_profile, negotiation
from scenarios.suites.hidden_profile import HiddenProfileCase, HiddenProfileGame, read_hidden_profiles
from scenarios.suites.negotiation import NegotiationCase, NegotiationGame, generate, read_deal
from scenarios.suites.table_talk import Parsed, TalkCase, TalkGame
from simulator.agents.suite_scripts import MakeScript, guess_hidden_profile, script_negotiation
from simulator.game import TeamGame
from simulator.records import Episode

TABLE_SUITES = (hidden_profile.NAME, negotiation.NAME)
ROUNDS = 3  # most drafts of ReconcileGPT, each voted on
LEVELS = range(1, 11)  # difficulties of negotiation, in turn
BEFORE, SOLVED, ALONE = "before the talk: majority", "after it: majority (solved)", "one agent, all facts"
AGREED, REGRET = "agreements", "regret"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSuite:
    """One suite, ready to be played.

    Example: open_table_suite("negotiation", file=None, count=50, seed=0).make_game(case)
    """

    label: str
    cases: Sequence[TalkCase]
    make_game: Callable[[Any], TeamGame]
    script: MakeScript  # its scripted players
    score: Callable[[Any, Episode, str], dict[str, float]]  # case, episode, text of the single agent
    single: Callable[[Any], tuple[Role, str]] | None = None  # role and brief of the single agent
    differences: Sequence[tuple[str, str]] = ()  # figures that are compared case by case


def open_table_suite(name: str, *, file: Path | None, count: int, seed: int) -> TableSuite:
    """Return the suite with at most `count` cases.

    Raises:
        UserError: no file where one is needed, or a damaged one.
    """
    if name == negotiation.NAME:
        if file is not None:
            raise UserError(f"--tasks {file}: {name} draws its own games; leave --tasks out")
        games = [generate(seed, index, LEVELS[index % len(LEVELS)]) for index in range(count)]
        return TableSuite(
            label=f"{name} of seed {seed}",
            cases=games,
            make_game=NegotiationGame,
            script=script_negotiation(games),
            score=lambda case, episode, _: score_negotiation(case, episode),
        )
    if file is None:
        raise UserError(f"--suite {name} needs --tasks: HiddenBench's benchmark.json, or tasks in its layout")
    cases = read_hidden_profiles(file)
    return TableSuite(
        label=f"{name} of {file.name} ({hashlib.sha256(file.read_bytes()).hexdigest()[:8]})",
        cases=cases[:count],
        make_game=HiddenProfileGame,
        script=guess_hidden_profile,
        score=score_hidden_profile,
        single=lambda case: (
            HiddenProfileGame(case).prompt_role(RECONCILER),
            HiddenProfileGame(case).write_single_brief(),
        ),
        differences=((SOLVED, BEFORE), (SOLVED, ALONE)),
    )


def score_hidden_profile(case: HiddenProfileCase, episode: Episode, alone: str) -> dict[str, float]:
    """Return shares from 0 to 1: who had the right answer. A majority is more than half of all members.

    An answer that cannot be read is wrong.
    """
    game = HiddenProfileGame(case)

    def is_right(parsed: Parsed | None) -> float:
        return float(parsed is not None and parsed["answer"] == case.right)

    first = [is_right(game.read_report(seat, episode.reports[seat])) for seat in case.seats]
    last = [is_right(game.read_vote(episode.votes.get(seat, ""))) for seat in case.seats]
    return {
        ALONE: is_right(game.read_decision({}, alone)),
        BEFORE: float(2 * sum(first) > len(first)),
        SOLVED: float(2 * sum(last) > len(last)),
        "draft of ReconcileGPT": is_right(game.read_decision({}, episode.decision)),
        "members right before": sum(first) / len(first),
        "members right after": sum(last) / len(last),
        "answers read": _share_read(game, episode),
    }


def score_negotiation(case: NegotiationCase, episode: Episode) -> dict[str, float]:
    """Return the figures of one game, from 0 to 1.

    Regret is 1 - surplus / best surplus. A deal that somebody objects to, or that pays a party less than its
    least total, is worth no deal: regret 1. A missing or malformed vote accepts nothing.
    """
    game = NegotiationGame(case)
    draft = game.read_decision({}, episode.decision)
    votes = {seat: game.read_vote(episode.votes.get(seat, "")) for seat in case.seats}
    accepts = {seat for seat, vote in votes.items() if vote is not None and vote["vote"] == "accept"}
    deal = None if draft is None else read_deal(draft)
    is_agreed = deal is not None and accepts == set(case.seats)
    surplus = case.surplus(deal) if deal is not None and is_agreed else None
    figures = {
        AGREED: float(is_agreed),
        REGRET: 1.0 if surplus is None else 1 - surplus / case.best,
        "answers read": _share_read(game, episode),
    }
    if deal is not None:
        is_below = {seat: case.points(seat, deal) < case.least(seat) for seat in case.seats}
        wrong = [seat for seat in case.seats if is_below[seat] and seat in accepts]
        spoilt = [seat for seat in case.seats if not is_below[seat] and seat not in accepts]
        figures["accepted below own least total"] = len(wrong) / len(votes)
        figures["not accepted although enough"] = len(spoilt) / len(votes)
    return figures


def sum_up_suite(suite: TableSuite, outcomes: Sequence[SuiteOutcome]) -> dict[str, Interval]:
    """Return the mean of every figure with its 95 % interval, paired differences, regret by difficulty."""
    rows: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            rows.setdefault(name, []).append(value)
    table = {name: mean_interval(values) for name, values in rows.items()}
    for one, other in suite.differences:
        table[f"{one} - {other}"] = paired_interval(rows[one], rows[other])
    for low, high in ((1, 3), (4, 6), (7, 10)):
        band = [one.figures for one in outcomes if low <= one.difficulty <= high]
        values = [figures[REGRET] for figures in band if REGRET in figures]
        if values:
            table[f"{REGRET}, difficulty {low}-{high}"] = mean_interval(values)
    return table


def _share_read(game: TalkGame, episode: Episode) -> float:
    read: Mapping[str, Any] = {
        **{f"report {seat}": game.read_report(seat, text) for seat, text in episode.reports.items()},
        **{f"vote {seat}": game.read_vote(text) for seat, text in episode.votes.items()},
        "decision": game.read_decision({}, episode.decision),
    }
    return sum(one is not None for one in read.values()) / len(read)
