"""A played team episode as people read it: briefs, reports, decision, votes, scores.

Model text is untrusted: control characters are made visible, HTML is escaped, nothing in it is evaluated.
"""

import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict

from evaluation.summary.run_table import role_title
from roles.base import AnswerError, parse_answer, parse_strict_json, split_answer
from roles.team import RECONCILER, Vote
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, SHARE_HABITS

MAX_SHOWN_CHARS = 2_000  # of one text
NOTHING = "(nothing)"
HABITS = frozenset({*REPORT_HABITS, *SHARE_HABITS, *FUNDING_HABITS})  # words before an expert's answer

SCORE_TITLES = {
    "reward": "team reward R",
    "value": "value V",
    "consensus": "justified agreement C",
    "unresolved": "unresolved conflicts U",
    "escalation": "wrong escalation H",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One episode for a reader; token ids and truth are left out.

    Example: Transcript(label="after MARL", scenario_key="team/test/0/7/2", briefs={"cto": "Retail ..."},
                        reports={"cto": '{"offers": [], "needs": [], "veto": []}'}, asked=(),
                        decision='{"option": "B", "fund": [], "escalate": false}',
                        votes={"cto": '{"vote": "accept"}'}, cut_off=(), error=None,
                        scores={"reward": 1.0}, explanation="B is the best option")
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

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
) -> Transcript:
    """Return the transcript of an Episode in plain dict form and the parts of its verdict.

    Numbers of `verdict` (those in its "parts" too) become scores, its "explanation" stays text.
    """
    numbers = {**verdict, **verdict.get("parts", {})}
    return Transcript(
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


def visible(text: str, *, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Text with unprintable characters (control, bidirectional) spelled out, cut at `max_chars`."""
    shown = "".join(
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text[:max_chars]
    )
    hidden = len(text) - max_chars
    return f"{shown} ... ({hidden} more characters)" if hidden > 0 else shown


def readable(text: str) -> str:
    """A written answer with its JSON object in words, then the rest; other text stays as written."""
    if not text.strip():
        return NOTHING
    try:
        before, shown = split_answer(text)
        start, end = len(before), len(before) + len(shown) - 1
    except AnswerError:
        start, end = text.find("{"), text.rfind("}")
    try:
        answer = parse_strict_json(text[start : end + 1]) if 0 <= start < end else None
    except AnswerError:
        answer = None
    if not isinstance(answer, dict):
        return visible(text.strip())
    offers = answer.pop("offers") if _are_offers(answer.get("offers")) else []
    lines = [_say_offer(offer) for offer in offers]
    said = ", ".join(f"{key} {_spoken(value)}" for key, value in answer.items() if value not in ("", []))
    words = "\n".join([*lines, *([said] if said or not lines else [])]) or "nothing"
    prose = " ".join(part.strip() for part in (text[:start], text[end + 1 :]) if part.strip())
    said_too = "habit" if prose in HABITS else "also wrote"
    return visible(f"{words}\n{said_too}: {prose}" if prose else words)


def render_text(played: Transcript, *, width: int = 100) -> str:
    """One episode for a terminal, as plain text (no markup)."""
    lines = [f"{played.label or 'episode'} - {played.scenario_key}", "=" * min(width, 60)]
    for title, text in list_sections(played):
        lines += [title, *("  " + line for line in wrap_lines(text, width - 2)), ""]
    return "\n".join(lines)


def list_sections(played: Transcript) -> list[tuple[str, str]]:
    """Titles and readable texts in the order of play: specialists first, then who reads their reports."""
    shared = find_shared_lines(list(played.briefs.values()))
    sections = [("All seats read", visible("\n".join(shared)))] if shared else []
    for role in {**played.reports, **played.briefs}:
        if role in played.briefs:
            own = "\n".join(played.briefs[role].split("\n")[len(shared) :])
            sections.append((f"{role_title(role)} reads", visible(own.strip())))
        if role in played.reports:
            sections.append((f"{role_title(role)} reports", _written(played, role, played.reports[role])))
    for ask, reply in played.asked:
        sections += [("Question", readable(ask)), ("Reply", readable(reply))]
    sections.append(("Decision", _written(played, RECONCILER, played.decision)))
    if played.votes:
        votes = (f"{role_title(role)}: {_vote(text)}" for role, text in played.votes.items())
        sections.append(("Votes", "\n".join(votes)))
    sections.append(("Scores", _score_lines(played)))
    return [(visible(title), text) for title, text in sections]


def find_shared_lines(briefs: Sequence[str]) -> list[str]:
    """Return the lines with which all briefs begin; none where there is one brief."""
    if len(briefs) < 2:
        return []
    rows = zip(*(brief.split("\n") for brief in briefs), strict=False)
    shared = [row[0] for row in itertools.takewhile(lambda row: len(set(row)) == 1, rows)]
    return shared if any(line.strip() for line in shared) else []


def _written(played: Transcript, role: str, text: str) -> str:
    return readable(text) + ("\n(cut off by a limit)" if role in played.cut_off else "")


def _score_lines(played: Transcript) -> str:
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


def _are_offers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_offer(one) for one in value)


def _is_offer(value: Any) -> bool:
    is_named = isinstance(value, dict) and set(value) == {"option", "part", "cost", "worth"}
    return is_named and isinstance(value["part"], list)


def _say_offer(offer: Mapping[str, Any]) -> str:
    part = " + ".join(map(str, offer["part"]))
    return f"{offer['option']}: {part}, cost {offer['cost']}, worth {offer['worth']}"


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(str, value)) or "none"
    if _is_offer(value):
        return _say_offer(value)
    if isinstance(value, dict) and set(value) == {"seat", "option", "cost_at_most"}:
        return "{seat} for another offer on {option} that costs at most {cost_at_most}".format_map(value)
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def wrap_lines(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; empty lines stay."""
    return [part for line in text.split("\n") for part in textwrap.wrap(line, width) or [""]]
