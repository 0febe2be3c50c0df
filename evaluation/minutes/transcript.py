"""A played team episode as people read it, and the same cases as the team of every stage played them."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from evaluation.minutes.words import NOTHING, find_shared_lines, readable, say_titles, visible
from evaluation.pages import load_template
from evaluation.scoring.outcomes import TeamOutcome
from roles.base import AnswerError, parse_answer
from roles.registry import ROLES
from roles.team import RECONCILER, Vote
from simulator.records import Episode
from simulator.reward import TeamVerdict

SCORE_TITLES = {
    "reward": "team reward R",
    "value": "value V",
    "consensus": "justified agreement C",
    "unresolved": "unresolved conflicts U",
    "escalation": "wrong escalation H",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTranscript:
    """One episode for a reader; token ids and truth are left out.

    Example: EpisodeTranscript(label="after MARL", scenario_key="team/test/0/7/2", briefs={"cto": "..."},
                        reports={"cto": '{"offers": [], "needs": [], "veto": []}'}, asked=(),
                        decision='{"option": "B", "fund": [], "escalate": false}',
                        votes={"cto": '{"vote": "accept"}'}, cut_off=(), error=None,
                        scores={"reward": 1.0}, explanation="B is the best option")
    """

    label: str  # which team played: "after GRPO"
    scenario_key: str
    briefs: Mapping[str, str]  # role -> what it read first
    reports: Mapping[str, str]
    asked: Sequence[tuple[str, str]]  # questions of ReconcileGPT with the seats' replies
    decision: str
    votes: Mapping[str, str]
    cut_off: Sequence[str]  # roles ended by a limit
    error: str | None  # infrastructure fault
    scores: Mapping[str, float]  # by the names of SCORE_TITLES; none: not scored
    explanation: str


def transcript(
    episode: Episode,
    verdict: TeamVerdict | None,
    *,
    briefs: Mapping[str, str],
    label: str = "",
    unscored: str = "",
) -> EpisodeTranscript:
    """Return the transcript of an episode; `unscored` says why there is no verdict."""
    return EpisodeTranscript(
        label=label,
        scenario_key=episode.scenario_key,
        briefs=briefs,
        reports=episode.reports,
        asked=[(one.ask, one.reply) for one in episode.asked],
        decision=episode.decision,
        votes=episode.votes,
        cut_off=[role for role, path in episode.trajectories.items() if path.truncated],
        error=episode.error,
        scores={} if verdict is None else {name: getattr(verdict, name) for name in SCORE_TITLES},
        explanation=unscored if verdict is None else verdict.explanation,
    )


def render_text(played: EpisodeTranscript, *, width: int = 100) -> str:
    """One episode for a terminal, as plain text (no markup)."""
    lines = [f"{played.label or 'episode'} - {played.scenario_key}", "=" * min(width, 60)]
    for title, text in list_sections(played):
        wrapped = (part for line in text.split("\n") for part in textwrap.wrap(line, width - 2) or [""])
        lines += [title, *("  " + line for line in wrapped), ""]
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
    lines = [f"{SCORE_TITLES[name]}: {value:.3f}" for name, value in played.scores.items()]
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


CHOICE_TITLES = {
    "median": "The median change",
    "loss": "The largest loss",
    "gain": "The largest gain",
}


def choose_cases(first: Sequence[float], last: Sequence[float]) -> dict[str, int]:
    """Return the cases with the median change of the team reward, the largest loss and the largest gain.

    `first`, `last`: team reward by case, after the first and the last stage. Of an even number the lower
    median counts, of equal changes the earlier case. A loss or a gain that there is not, or that is the
    median case itself, is not chosen.

    Example: choose_cases([0.5, 0.5, 0.0], [0.5, 0.4, 1.0]) == {"median": 0, "loss": 1, "gain": 2}
    """
    changes = [after - before for before, after in zip(first, last, strict=True)]
    ordered = sorted(range(len(changes)), key=changes.__getitem__)
    median, worst = ordered[(len(ordered) - 1) // 2], ordered[0]
    best = max(ordered, key=changes.__getitem__)
    chosen = {"median": median}
    if worst != median and changes[worst] < 0:
        chosen["loss"] = worst
    if best != median and changes[best] > 0:
        chosen["gain"] = best
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCase:
    """One test case, played by the team of every stage.

    Example: ChosenCase(choice="median", num_cases=600, is_greedy=True, plays=(EpisodeTranscript(...), ...))
    """

    choice: str  # why it is shown: a key of CHOICE_TITLES
    num_cases: int  # from which it was chosen
    is_greedy: bool  # how it was played
    plays: Sequence[EpisodeTranscript]  # by stage, the first one first

    @property
    def title(self) -> str:
        """The choice and its numbers: "The median change: team reward +0.120"."""
        change = self.plays[-1].scores["reward"] - self.plays[0].scores["reward"]
        return f"{CHOICE_TITLES[self.choice]}: team reward {change:+.3f}"

    @property
    def rule(self) -> str:
        """The rule by which the shown cases were chosen, in one sentence."""
        first, last = self.plays[0].label, self.plays[-1].label
        return (
            f"Chosen by a fixed rule from {self.num_cases} sealed test cases, each played"
            f" {'greedily ' if self.is_greedy else ''}by the team of every stage: the case with the median"
            f" change of the team reward from {first} to {last}, then the one with the largest loss and the"
            " one with the largest gain, where there are any."
        )


def load_case(stored: Mapping[str, Any]) -> ChosenCase:
    """Return the case whose `asdict` is stored."""
    return ChosenCase(**{**stored, "plays": tuple(EpisodeTranscript(**play) for play in stored["plays"])})


def describe_outcome(outcome: TeamOutcome, *, briefs: Mapping[str, str], label: str) -> EpisodeTranscript:
    """Return the transcript of an evaluated episode."""
    names = ("reports", "asked", "decision", "votes", "cut_off", "explanation")
    said = {name: getattr(outcome, name) for name in names}
    scores = {name: getattr(outcome, name) for name in SCORE_TITLES}
    return EpisodeTranscript(
        label=label, scenario_key=outcome.key, briefs=briefs, error=None, scores=scores, **said
    )


def render_side_by_side_html(plays: Sequence[EpisodeTranscript]) -> Markup:
    """Plays of one case as an HTML fragment: a row per section, one cell where all are the same."""
    page = load_template("side_by_side.html").render(plays=plays, sections=pair_sections(plays))
    return Markup(page)


def pair_sections(plays: Sequence[EpisodeTranscript]) -> Iterable[tuple[str, list[str]]]:
    """(title, text of each play) of every section of a case."""
    sections = [dict(list_sections(play)) for play in plays]
    for title in dict.fromkeys(title for one in sections for title in one):
        yield title, [one.get(title, NOTHING) for one in sections]
