"""External benchmarks: folders of short questions, data sets of Reasoning Gym, suites that a team plays.

Every row of such a folder is a test: nothing of it is trained on. Answers are compared as GAIA does
(arXiv:2311.12983): numbers as numbers, lists element by element, text without case, spaces, punctuation.
A row that comes with a file is left out and counted: the agents have no tool to open it.
"""

import hashlib
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evaluation.scoring.outcomes import RoleOutcome, SuiteOutcome
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from roles.base import Role
from roles.errors import UserError, unknown
from roles.team import RECONCILER
from scenarios.base import Family, Scenario, Verdict
from scenarios.suites import (
    HIDDEN_PROFILE,
    NEGOTIATION,
    HiddenProfileCase,
    HiddenProfileGame,
    NegotiationCase,
    NegotiationGame,
    Parsed,
    TalkCase,
    TalkGame,
    draw_negotiation,
    read_deal,
    read_hidden_profiles,
)
from scenarios.tasks.grading.text_checks import Score
from scenarios.tasks.imported import ROLE, TaskSet, make_family
from scenarios.tasks.question_files import iterate_rows
from scenarios.tasks.solver import judge
from simulator.agents.suite_scripts import MakeScript, guess_hidden_profile, script_negotiation
from simulator.game import TeamGame
from simulator.records import Episode

NAME = "external"
QUESTION_KEYS, ANSWER_KEYS = ("question", "Question"), ("answer", "Final answer", "final_answer")
MAX_CHARS = 20_000
SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """Contents of a folder of external tasks.

    Example: TaskFolder(scenarios=(Scenario(...),), rejected=("a.jsonl row 3: answer is missing",),
                        num_with_files=2)
    """

    scenarios: tuple[Scenario, ...]
    rejected: tuple[str, ...]  # file, row and reason
    num_with_files: int  # rows left out because they come with a file


def read_task_folder(folder: Path) -> TaskFolder:
    """Return all questions of the JSON and JSON Lines files in a folder, file by file.

    Raises:
        UserError: no folder, no such file in it, no usable row, or a damaged file.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; give one with .json or .jsonl files of questions and answers")
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.name != "import.json"
    )
    if not files:
        raise UserError(f"{folder} holds no .json or .jsonl file of questions and answers")
    scenarios: list[Scenario] = []
    rejected: list[str] = []
    num_with_files = 0
    for path in files:
        for number, row in iterate_rows(path):
            if isinstance(row, dict) and row.get("file_name"):
                num_with_files += 1
                continue
            try:
                scenarios.append(_scenario(row, str(path.relative_to(folder)), len(scenarios)))
            except ValueError as error:
                rejected.append(f"{path} row {number}: {error}")
    if not scenarios:
        reason = rejected[0] if rejected else f"all {num_with_files} rows come with a file"
        raise UserError(f"{folder} holds no usable question; {reason}")
    return TaskFolder(scenarios=tuple(scenarios), rejected=tuple(rejected), num_with_files=num_with_files)


def _scenario(row: Any, source: str, index: int) -> Scenario:
    if not isinstance(row, dict):
        raise ValueError(getattr(row, "reason", "not an object"))
    question, answer = _text(row, QUESTION_KEYS), _text(row, ANSWER_KEYS)
    level = str(row.get("Level", row.get("level", 1)))
    difficulty = int(level) if level.isdecimal() and 1 <= int(level) <= 10 else 1
    return _make_scenario(NAME, index, question, source, {"answer": answer}, difficulty)


def _make_scenario(
    family: str, index: int, question: str, source: str, truth: dict[str, Any], difficulty: int = 1
) -> Scenario:
    return Scenario(
        family=family,
        split="test",
        seed=0,
        index=index,
        difficulty=difficulty,
        role=ROLE.name,
        brief=question,
        facts={"source": source},
        truth=truth,
        optimal_tool_calls=0,
    )


def _text(row: dict[str, Any], keys: Sequence[str]) -> str:
    value = next((row[key] for key in keys if row.get(key) not in (None, "")), None)
    if value is None:
        raise ValueError(f"{keys[0]} is missing")
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError(f"{keys[0]} is neither text nor a number")
    text = str(value).strip()
    if not text or len(text) > MAX_CHARS:
        raise ValueError(f"{keys[0]} of {len(text)} characters (1 to {MAX_CHARS})")
    return text


def is_same_answer(answer: str, expected: str) -> bool:
    """Return whether two short answers are the same by GAIA's rules; never by one containing the other."""
    if len(answer) > MAX_CHARS:
        return False
    if (number := _number(expected)) is not None:
        return _number(answer) == number
    if any(mark in expected for mark in ",;"):
        parts = [_split(text) for text in (answer, expected)]
        return len(parts[0]) == len(parts[1]) and all(
            _same_part(one, other) for one, other in zip(*parts, strict=True)
        )
    return _plain(answer) == _plain(expected) != ""


def _same_part(answer: str, expected: str) -> bool:
    number = _number(expected)
    if number is not None:
        return _number(answer) == number
    return answer.casefold().split() == expected.casefold().split()


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.replace(";", ",").split(",")]


def _number(text: str) -> float | None:
    bare = text.strip().replace("$", "").replace("%", "").replace(",", "").strip()
    if not bare or not set(bare) <= set("0123456789.+-eE") or bare[0] in "eE":
        return None
    try:
        return float(bare)
    except ValueError:
        return None


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character not in _DROPPED)


_DROPPED = frozenset(string.punctuation + string.whitespace)


def verify(scenario: Scenario, text: str) -> Verdict:
    """The verdict on a final text: one JSON object with an answer, compared as `is_same_answer` does."""
    return _judge(text, lambda answer: is_same_answer(answer, str(scenario.truth["answer"])))


def _judge(text: str, is_right: Callable[[str], bool]) -> Verdict:
    def score(answer: str) -> Score:
        if is_right(answer):
            return Score(value=1.0, explanation="right", failure=None)
        return Score(value=0.0, explanation=f"not {answer[:40]!r}", failure="wrong")

    return judge(text, score)


FAMILY = replace(make_family(TaskSet(NAME, ())), verify=verify)  # generates nothing: files hold the tasks
SOLVERS: dict[str, Role] = {ROLE.name: ROLE}


def sum_up_tasks(outcomes: Sequence[RoleOutcome]) -> dict[str, Interval]:
    """Share right, over all and by level."""
    groups: dict[str, list[float]] = {"all": []}
    for outcome in outcomes:
        groups["all"].append(outcome.reward)
        groups.setdefault(f"level {outcome.difficulty}", []).append(outcome.reward)
    return {name: mean_interval(values) for name, values in sorted(groups.items())}


REASONING_GYM = "reasoning-gym"
SUITES = (REASONING_GYM,)
SIZE = 100  # questions of each data set; some draw others for another size


def read_suite(name: str, count: int) -> tuple[TaskFolder, Family]:
    """Return the first `count` questions of a suite, dealt evenly over its data sets, and their verifier.

    Raises:
        UserError: unknown suite, its package is not installed, or it has fewer questions.
    """
    if name not in SUITES:
        raise unknown("--suite", name, list(SUITES))
    if find_spec("reasoning_gym") is None:
        raise UserError("--suite reasoning-gym needs its package; pip install reasoning-gym")
    names = _list_data_sets()
    if count > SIZE * len(names):
        raise UserError(f"--count {count}: {name} has {SIZE * len(names)} questions here")
    scenarios, rejected = [], []
    for index in range(count):
        item, place = divmod(index, len(names))
        try:
            question = str(_open(names[place])[item]["question"])
        except RuntimeError as error:  # a generator that gives up
            rejected.append(f"{names[place]} {item}: {error}")
            continue
        scenarios.append(_make_scenario(name, index, question, names[place], {"item": item}))
    folder = TaskFolder(scenarios=tuple(scenarios), rejected=tuple(rejected), num_with_files=0)
    return folder, replace(FAMILY, name=name, verify=verify_suite_task)


def verify_suite_task(scenario: Scenario, text: str) -> Verdict:
    """The verdict on a final text: one JSON object with an answer, which the data set itself compares."""
    data, item = _open(scenario.facts["source"]), scenario.truth["item"]
    return _judge(
        text, lambda answer: len(answer) <= MAX_CHARS and data.score_answer(answer, data[item]) == 1
    )


@cache
def _list_data_sets() -> tuple[str, ...]:
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    compares_text = ProceduralDataset.score_answer
    return tuple(name for name, (kind, _) in sorted(DATASETS.items()) if kind.score_answer is compares_text)


@cache
def _open(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=SIZE, seed=0)


TABLE_SUITES = (HIDDEN_PROFILE, NEGOTIATION)
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
    if name == NEGOTIATION:
        if file is not None:
            raise UserError(f"--tasks {file}: {name} draws its own games; leave --tasks out")
        games = [draw_negotiation(seed, index, LEVELS[index % len(LEVELS)]) for index in range(count)]
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
