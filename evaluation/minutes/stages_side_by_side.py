"""A few test cases as the team of every training stage played them, chosen by a fixed rule, side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, Literal

from markupsafe import Markup
from pydantic import ConfigDict, TypeAdapter, ValidationError

from evaluation.minutes.transcript import NOTHING, Transcript, list_sections, wrap_lines
from roles.errors import UserError
from simulator.export.atomic_files import write_atomic

SIDE_BY_SIDE_FILE = "episodes_side_by_side.json"
Choice = Literal["median", "loss", "gain"]
CHOICE_TITLES: dict[Choice, str] = {
    "median": "The median change",
    "loss": "The largest loss",
    "gain": "The largest gain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCase:
    """One test case, played by the team of every stage.

    Example: ChosenCase(choice="median", change=0.12, num_cases=24, plays=(Transcript(label="SFT", ...), ...))
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    choice: Choice  # why it is shown
    change: float  # of the team reward, from the first stage to the last
    num_cases: int  # from which it was chosen
    plays: tuple[Transcript, ...]  # by stage, the first one first


_CASES: TypeAdapter[list[ChosenCase]] = TypeAdapter(list[ChosenCase])


def choose_cases(cases: Sequence[Sequence[Transcript]]) -> list[ChosenCase]:
    """Return the cases with the median change of the team reward, the largest loss and the largest gain.

    A case is its plays by stage; the change is the last play's reward less the first one's. Of an even number
    the lower median counts, of equal changes the earlier case. Cases with an infrastructure fault are left
    out; a loss or a gain that there is not, or that is the median case itself, is not shown.
    """
    scored = [plays for plays in cases if all(play.error is None for play in plays)]
    ordered = sorted(scored, key=_measure_change)
    if not ordered:
        return []
    chosen: list[tuple[Choice, Sequence[Transcript]]] = [("median", ordered[(len(ordered) - 1) // 2])]
    if ordered[0] is not chosen[0][1] and _measure_change(ordered[0]) < 0:
        chosen.append(("loss", ordered[0]))
    best = max(ordered, key=_measure_change)
    if best is not chosen[0][1] and _measure_change(best) > 0:
        chosen.append(("gain", best))
    return [
        ChosenCase(choice=choice, change=_measure_change(plays), num_cases=len(scored), plays=tuple(plays))
        for choice, plays in chosen
    ]


def _measure_change(plays: Sequence[Transcript]) -> float:
    return plays[-1].scores["reward"] - plays[0].scores["reward"]


def say_rule(case: ChosenCase) -> str:
    """State the rule by which the shown cases were chosen, in one sentence."""
    first, last = case.plays[0].label, case.plays[-1].label
    return (
        f"Chosen by a fixed rule from {case.num_cases} sealed test cases, each played greedily by the team of"
        f" every stage: the case with the median change of the team reward from {first} to {last}, then the"
        " one with the largest loss and the one with the largest gain, where there are any."
    )


def say_title(case: ChosenCase) -> str:
    """Return the choice and its numbers: "The median change: +0.120"."""
    return f"{CHOICE_TITLES[case.choice]}: team reward {case.change:+.3f}"


def write_side_by_side(run_path: Path, cases: Sequence[ChosenCase]) -> Path:
    """Write the chosen cases into the run folder, where the report finds them."""
    path = run_path / SIDE_BY_SIDE_FILE
    write_atomic(path, _CASES.dump_json(list(cases), indent=1))
    return path


def read_side_by_side(run_path: Path) -> list[ChosenCase]:
    """Cases written by write_side_by_side; none where the file is missing.

    Raises:
        UserError: the file is there and holds something else.
    """
    path = run_path / SIDE_BY_SIDE_FILE
    if not path.is_file():
        return []
    try:
        return _CASES.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is no list of played cases ({where}: {first['msg']}); "
            f"run `emads evaluate {run_path}` to write it again"
        ) from None


def render_side_by_side_text(plays: Sequence[Transcript], *, width: int = 100) -> str:
    """Plays of one case in columns; texts that all share stand once, over all columns."""
    column = max(20, (width + 3) // len(plays) - 3)
    head = " | ".join(f"{play.label:<{column}}" for play in plays)
    lines = [plays[0].scenario_key, "", head.rstrip(), "-" * (len(plays) * (column + 3) - 3)]
    for title, texts in _rows(plays):
        is_same = len(set(texts)) == 1
        lines.append(title if is_same else f"{title} (differs)")
        if is_same:
            lines += ["  " + line for line in wrap_lines(texts[0], width - 2)]
        else:
            columns = zip_longest(*(wrap_lines(text, column) for text in texts), fillvalue="")
            lines += [" | ".join(f"{cell:<{column}}" for cell in row).rstrip() for row in columns]
        lines.append("")
    return "\n".join(lines)


def render_side_by_side_html(plays: Sequence[Transcript]) -> Markup:
    """Plays of one case as an HTML fragment: a row per section, one cell where all are the same."""
    rows = []
    for title, texts in _rows(plays):
        if len(set(texts)) == 1:
            cells = Markup('<div class="say all"><p>{}</p></div>').format(texts[0])
        else:
            cells = Markup("").join(
                Markup('<div class="say"><span class="tag">{}</span><p>{}</p></div>').format(play.label, text)
                for play, text in zip(plays, texts, strict=True)
            )
        rows.append(Markup('<h4>{}</h4><div class="row">{}</div>').format(title, cells))
    head = Markup("<header>scenario <code>{}</code></header>").format(plays[0].scenario_key)
    return Markup('<article class="transcript">{}{}</article>').format(head, Markup("").join(rows))


def _rows(plays: Sequence[Transcript]) -> Iterable[tuple[str, list[str]]]:
    sections = [dict(list_sections(play)) for play in plays]
    for title in dict.fromkeys(title for one in sections for title in one):
        yield title, [one.get(title, NOTHING) for one in sections]
