"""A played team episode as people read it, and the same cases as the team of every stage played them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from markupsafe import Markup
from pydantic import ConfigDict, TypeAdapter, ValidationError

from evaluation.minutes.words import NOTHING, find_shared_lines, readable, say_titles, visible, wrap_lines
from evaluation.pages import load_template
from roles.base import AnswerError, parse_answer
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, Vote
from simulator.export.atomic_files import write_atomic

SCORE_TITLES = {
    "reward": "team reward R",
    "value": "value V",
    "consensus": "justified agreement C",
    "unresolved": "unresolved conflicts U",
    "escalation": "wrong escalation H",
}
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTranscript:
    """One episode for a reader; token ids and truth are left out.

    Example: EpisodeTranscript(label="after MARL", scenario_key="team/test/0/7/2", briefs={"cto": "..."},
                        reports={"cto": '{"offers": [], "needs": [], "veto": []}'}, asked=(),
                        decision='{"option": "B", "fund": [], "escalate": false}',
                        votes={"cto": '{"vote": "accept"}'}, cut_off=(), error=None,
                        scores={"reward": 1.0}, explanation="B is the best option")
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    label: str  # which team played: "after GRPO"
    scenario_key: str
    briefs: dict[str, str]  # role -> what it read first
    reports: dict[str, str]
    asked: tuple[tuple[str, str], ...]  # questions of ReconcileGPT with the seats' replies
    decision: str
    votes: dict[str, str]
    cut_off: tuple[str, ...]  # roles ended by a limit
    error: str | None  # infrastructure fault
    scores: dict[str, float]  # "reward", "value", "consensus", "unresolved", "escalation", ...
    explanation: str


def transcript(
    episode: Mapping[str, Any], verdict: Mapping[str, Any], *, briefs: Mapping[str, str], label: str = ""
) -> EpisodeTranscript:
    """Return the transcript of an Episode in plain dict form and the parts of its verdict.

    Numbers of `verdict` (those in its "parts" too) become scores, its "explanation" stays text.
    """
    numbers = {**verdict, **verdict.get("parts", {})}
    return EpisodeTranscript(
        label=label,
        scenario_key=episode["scenario_key"],
        briefs=dict(briefs),
        reports=dict(episode["reports"]),
        asked=tuple((one["ask"], one["reply"]) for one in episode.get("asked", ())),
        decision=episode["decision"],
        votes=dict(episode["votes"]),
        cut_off=tuple(role for role, path in episode["trajectories"].items() if path["ended_by"] != "answer"),
        error=episode.get("error"),
        scores={name: float(value) for name, value in numbers.items() if isinstance(value, int | float)},
        explanation=str(verdict.get("explanation", "")),
    )


def render_text(played: EpisodeTranscript, *, width: int = 100) -> str:
    """One episode for a terminal, as plain text (no markup)."""
    lines = [f"{played.label or 'episode'} - {played.scenario_key}", "=" * min(width, 60)]
    for title, text in list_sections(played):
        lines += [title, *("  " + line for line in wrap_lines(text, width - 2)), ""]
    return "\n".join(lines)


def list_sections(played: EpisodeTranscript) -> list[tuple[str, str]]:
    """Titles and readable texts in the order of play: specialists first, then who reads their reports."""
    shared = find_shared_lines(list(played.briefs.values()))
    sections = [("All seats read", visible("\n".join(shared)))] if shared else []
    for role in {**played.reports, **played.briefs}:
        if role in played.briefs:
            own = "\n".join(played.briefs[role].split("\n")[len(shared) :])
            sections.append((f"{say_titles([role], ROLES)} reads", visible(own.strip())))
        if role in played.reports:
            sections.append(
                (f"{say_titles([role], ROLES)} reports", _written(played, role, played.reports[role]))
            )
    for ask, reply in played.asked:
        sections += [("Question", readable(ask)), ("Reply", readable(reply))]
    sections.append(("Decision", _written(played, RECONCILER, played.decision)))
    if played.votes:
        votes = (f"{say_titles([role], ROLES)}: {_vote(text)}" for role, text in played.votes.items())
        sections.append(("Votes", "\n".join(votes)))
    sections.append(("Scores", _score_lines(played)))
    return [(visible(title), text) for title, text in sections]


def _written(played: EpisodeTranscript, role: str, text: str) -> str:
    return readable(text) + ("\n(cut off by a limit)" if role in played.cut_off else "")


def _score_lines(played: EpisodeTranscript) -> str:
    lines = [f"{SCORE_TITLES.get(name, name)}: {value:.3f}" for name, value in played.scores.items()]
    if played.explanation:
        lines.append(visible(played.explanation))
    if played.error is not None:
        lines.append(f"not scored, infrastructure fault: {visible(played.error)}")
    return "\n".join(lines) or NOTHING


def _vote(text: str) -> str:
    try:
        return parse_answer(text, Vote).vote
    except AnswerError:
        return readable(text)


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

    Example: ChosenCase(choice="median", change=0.12, num_cases=24, plays=(EpisodeTranscript(...), ...))
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    choice: Choice  # why it is shown
    change: float  # of the team reward, from the first stage to the last
    num_cases: int  # from which it was chosen
    plays: tuple[EpisodeTranscript, ...]  # by stage, the first one first

    @property
    def title(self) -> str:
        """The choice and its numbers: "The median change: team reward +0.120"."""
        return f"{CHOICE_TITLES[self.choice]}: team reward {self.change:+.3f}"

    @property
    def rule(self) -> str:
        """The rule by which the shown cases were chosen, in one sentence."""
        first, last = self.plays[0].label, self.plays[-1].label
        return (
            f"Chosen by a fixed rule from {self.num_cases} sealed test cases, each played greedily by the"
            " team of every stage: the case with the median change of the team reward from"
            f" {first} to {last}, then the one with the largest loss and the one with the largest gain, where"
            " there are any."
        )


_CASES: TypeAdapter[list[ChosenCase]] = TypeAdapter(list[ChosenCase])


def choose_cases(cases: Sequence[Sequence[EpisodeTranscript]]) -> list[ChosenCase]:
    """Return the cases with the median change of the team reward, the largest loss and the largest gain.

    A case is its plays by stage; the change is the last play's reward less the first one's. Of an even number
    the lower median counts, of equal changes the earlier case. Cases with an infrastructure fault are left
    out; a loss or a gain that there is not, or that is the median case itself, is not shown.
    """
    scored = [plays for plays in cases if all(play.error is None for play in plays)]
    ordered = sorted(scored, key=_measure_change)
    if not ordered:
        return []
    median, best = ordered[(len(ordered) - 1) // 2], max(ordered, key=_measure_change)
    chosen: list[tuple[Choice, Sequence[EpisodeTranscript]]] = [("median", median)]
    if ordered[0] is not median and _measure_change(ordered[0]) < 0:
        chosen.append(("loss", ordered[0]))
    if best is not median and _measure_change(best) > 0:
        chosen.append(("gain", best))
    return [
        ChosenCase(choice=choice, change=_measure_change(plays), num_cases=len(scored), plays=tuple(plays))
        for choice, plays in chosen
    ]


def _measure_change(plays: Sequence[EpisodeTranscript]) -> float:
    return plays[-1].scores["reward"] - plays[0].scores["reward"]


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


def render_side_by_side_html(plays: Sequence[EpisodeTranscript]) -> Markup:
    """Plays of one case as an HTML fragment: a row per section, one cell where all are the same."""
    page = load_template("side_by_side.html").render(plays=plays, sections=pair_sections(plays))
    return Markup(page)


def pair_sections(plays: Sequence[EpisodeTranscript]) -> Iterable[tuple[str, list[str]]]:
    """(title, text of each play) of every section of a case."""
    sections = [dict(list_sections(play)) for play in plays]
    for title in dict.fromkeys(title for one in sections for title in one):
        yield title, [one.get(title, NOTHING) for one in sections]
