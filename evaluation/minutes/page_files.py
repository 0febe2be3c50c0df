"""Templates and files of the pages of minutes, and the index page of a folder of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from evaluation.minutes.episode_in_words import find_title, say_outcome
from evaluation.minutes.governed_in_words import STATUS, say_decision
from evaluation.minutes.transcript import visible
from scenarios.team import PlayableCase
from simulator.export.atomic_files import write_atomic
from simulator.governance.record import GovernedRecord
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamVerdict

INDEX_FILE = "index.html"
INDEX_TEMPLATE = "index_template.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One page of minutes in the index.

    Example: IndexRow(file="team-test-0-7-2.html", title="Bank case: 3 options", key="team/test/0/7/2",
                      outcome="Decided: option B", status="", tone="good", reward="0.97")
    """

    file: str
    title: str
    key: str
    outcome: str
    status: str  # of a governed episode
    tone: str  # "good", "bad", "warn" or ""
    reward: str  # "" where nobody knows the right answer


def minutes_file(episode: Episode) -> str:
    """The page's file name, e.g. "team-test-0-7-2.html" (with ".1" before the ending for a second play)."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", episode.scenario_key)
    return f"{name}{f'.{episode.index_in_group}' if episode.index_in_group else ''}.html"


def make_index_row(
    case: PlayableCase, played: Episode | GovernedRecord, verdict: TeamVerdict | None
) -> IndexRow:
    """Return the row of one page; its file is that of `minutes_file`."""
    episode = played.episode if isinstance(played, GovernedRecord) else played
    if isinstance(played, GovernedRecord):
        status, tone = STATUS.get(played.status, (played.status, ""))
        outcome = say_decision(played, case)
    else:
        decision = read_episode(case, episode).decision
        status, tone = "", "good" if decision is not None and not decision.escalate else "bad"
        outcome = say_outcome(case, episode, decision)
    return IndexRow(
        file=minutes_file(episode),
        title=find_title(case),
        key=visible(case.key),
        outcome=outcome,
        status=status,
        tone=tone,
        reward=f"{verdict.reward:.2f}" if verdict else "",
    )


def write_index(folder: Path, rows: Sequence[IndexRow], *, label: str) -> Path:
    """Write index.html beside the pages that it links to, in the order of `rows`."""
    page = load_template(INDEX_TEMPLATE).render(label=visible(label), rows=rows)
    return write_page(folder / INDEX_FILE, page)


def load_template(name: str) -> Template:
    """A page's template: everything that is put in is escaped, and everything that is named must be given."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(
            lambda one: files("evaluation.minutes").joinpath("templates", one).read_text(encoding="utf-8")
        ),
    )
    return environment.get_template(name)


def write_page(path: Path, page: str) -> Path:
    """Write a page; it appears under its name only once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page)
    return path
