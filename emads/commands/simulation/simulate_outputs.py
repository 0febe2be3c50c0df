"""Files and live views of `emads simulate`, beside its text on the terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaluation.minutes.live_view import LiveView
from evaluation.minutes.page_files import make_index_row, minutes_file, write_index, write_page
from scenarios.team.playable import PlayableCase
from simulator.export.telemetry import write_spans
from simulator.governance.record import GovernedRecord
from simulator.observer import Watch, join_watches
from simulator.records import Episode
from simulator.reward import TeamVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Paths of the files to write beside the text on the terminal; None: no file.

    Example: Outputs(html=Path("runs/minutes"), episodes=Path("runs/episodes.jsonl"))
    """

    html: Path | None = None  # folder for one page of minutes per episode
    episodes: Path | None = None  # JSONL file
    atif: Path | None = None  # folder for one ATIF document per episode
    spans: Path | None = None  # file for OpenTelemetry spans
    live: bool = False  # events on the terminal while they happen, in place of the text at the end


@contextmanager
def watching(outputs: Outputs, num_cases: int, *, is_asking: bool = False) -> Iterator[Watch | None]:
    """Observers of the episodes; None where none was asked for. `is_asking`: a person answers meanwhile.

    Raises:
        UserError: spans without OpenTelemetry.
    """
    with ExitStack() as stack:
        watches: list[Watch] = []
        if outputs.spans is not None:
            watches.append(stack.enter_context(write_spans(outputs.spans)))
        if outputs.live:
            watches.append(
                stack.enter_context(LiveView(with_keys=num_cases > 1, with_status=not is_asking)).watch
            )
        yield join_watches(watches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One episode as files show it: its case and verdict, its page, and the writer of its ATIF document."""

    case: PlayableCase
    played: Episode | GovernedRecord
    verdict: TeamVerdict | None
    page: Callable[[], str]
    write_atif: Callable[[Path], object]


def write_outputs(
    outputs: Outputs, shown: Sequence[Shown], label: str, write_lines: Callable[[Path], object]
) -> list[str]:
    """Write what was asked for; `write_lines` writes the episodes as JSON lines. One line for each place."""
    lines = []
    for one in shown:
        name = minutes_file(one.played if isinstance(one.played, Episode) else one.played.episode)
        if outputs.html is not None:
            lines.append(f"minutes:  {write_page(outputs.html / name, one.page())}")
        if outputs.atif is not None:
            document = outputs.atif / name.replace(".html", ".json")
            one.write_atif(document)
            lines.append(f"ATIF:     {document}")
    if outputs.html is not None and len(shown) > 1:
        rows = [make_index_row(one.case, one.played, one.verdict) for one in shown]
        lines.append(f"index:    {write_index(outputs.html, rows, label=label)}")
    if outputs.episodes is not None:
        write_lines(outputs.episodes)
        lines.append(f"episodes: {outputs.episodes}")
    if outputs.spans is not None:
        lines.append(f"spans:    {outputs.spans}")
    return lines
