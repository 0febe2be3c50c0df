"""Files and live views of `emads simulate`, beside its text on the terminal."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaluation.minutes.live_view import LiveView
from simulator.export.telemetry import write_spans
from simulator.observer import Watch, join_watches


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
