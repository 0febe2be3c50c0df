"""Cases for people: where the trained team is unsure, what it read and said, and an empty label beside it.

A case is uncertain when the team escalated it, wrote no valid decision, decided differently when asked again
on the same reports, or when a specialist objected. `queue.jsonl` holds no truth. Labels that people write
into it come back through `read_labels`: a corrected decision is a demonstration for SFT, and a better one
beside the team's own a preference pair.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evaluation.scoring.sealed_plays import play_team
from roles.errors import UserError
from scenarios.team import TeamScenario
from scenarios.team.offers import offers_on
from simulator.engines.base import Sampling
from simulator.export.atomic_files import explain_os_errors, write_atomic
from simulator.graph.runner import play_decisions
from simulator.reading import ReadEpisode, read_episode, read_reports
from simulator.records import Episode
from training.config.run_config import RunConfig
from training.data.demonstrations import team_scenario
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat, team_engine

STAGE = "review"
QUEUE = "review/queue.jsonl"
NO_DECISION = "none valid"
Reason = Literal["escalated", "no valid decision", "low margin", "objection"]


class Label(BaseModel):
    """A person's answer. Example: Label(option="B", fund=["cto"], escalate=False, by="ana", comment="")"""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    option: str  # one of the case's options, or "none" with escalate
    fund: list[str] = []  # labels of the offers on it that are funded
    escalate: bool
    by: Annotated[str, Field(min_length=1, max_length=100)]
    comment: Annotated[str, Field(max_length=4000)] = ""


class QueuedCase(BaseModel):
    """One line of the queue. Example: one with label null waits for a person."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    key: str  # of the scenario
    index: int  # of the scenario in the training stream
    options: dict[str, list[str]]  # option -> labels of the offers on it
    reasons: tuple[Reason, ...]
    margin: float  # share of the most frequent decision minus that of the next, 0 to 1
    decisions: dict[str, int]  # what was decided on the same reports, and how often
    briefs: dict[str, str]  # role -> what it was told
    table: str  # what ReconcileGPT decides from
    reports: dict[str, str]
    decision: str  # the team's own, as written
    own: list[str] | None  # its option and the labels that it funds, in order; None where it cannot be read
    votes: dict[str, str]
    label: Label | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledCase:
    """A label as training data. Example: LabelledCase(index=3, chosen='{"option": ...}', rejected=None)"""

    index: int  # the scenario: its prompts can be made again
    reports: dict[str, str]  # those that the decision answers to
    chosen: str  # the person's decision, as ReconcileGPT would write it
    rejected: str | None  # the team's own decision; None where it was the same


def build_queue(run: Run) -> int:
    """Play new cases with the trained team and write the uncertain ones; how many there are.

    Cases that people have labelled already keep their label.
    """
    config = run.config
    models, tokenizer = load_team(run, "marl")
    chat = make_chat(tokenizer, config)
    data, first = config.data, config.review.first_index
    cases = [
        team_scenario("train", data.seed, first + i, data.difficulties)
        for i in range(config.review.num_scenarios)
    ]
    engine = team_engine(models, tokenizer, config, "marl")
    episodes = play_team(
        cases,
        engine=engine,
        chat=chat,
        temperature=0.0,
        max_completion_tokens=config.marl.max_completion_tokens,
        stream=STAGE,
        make_game=choose_game(config),
        rounds=config.marl.rounds,
    )
    again = asyncio.run(
        play_decisions(
            list(zip(cases, episodes, strict=True)),
            {role: role for role in models},
            engine,
            chat,
            Sampling(
                temperature=config.marl.temperature, max_completion_tokens=config.marl.max_completion_tokens
            ),
            num_decisions=config.review.decisions_per_case,
            with_votes=False,
            stream=f"{STAGE}/again",
            make_game=choose_game(config),
        )
    )
    num = config.review.decisions_per_case
    queued = []
    for place, (case, episode) in enumerate(zip(cases, episodes, strict=True)):
        found = judge(case, episode, again[place * num : (place + 1) * num], config, place)
        if found.reasons and episode.error is None:
            queued.append(found)
    queued.sort(key=lambda case: (-len(case.reasons), case.margin, case.index))
    write_queue(run, queued[: config.review.max_cases])
    return min(len(queued), config.review.max_cases)


def judge(
    case: TeamScenario, episode: Episode, again: Sequence[Episode], config: RunConfig, place: int
) -> QueuedCase:
    """How sure the team was of one case; no reasons if it was."""
    game, read = choose_game(config)(case), read_episode(case, episode)
    counts = Counter(_name(read_episode(case, one)) for one in again if one.error is None)
    ranked = [count for _, count in counts.most_common(2)] + [0, 0]
    margin = (ranked[0] - ranked[1]) / max(1, sum(counts.values()))
    reasons: list[Reason] = []
    if read.decision is None:
        reasons.append("no valid decision")
    elif read.decision.escalate:
        reasons.append("escalated")
    if margin < config.review.low_margin:
        reasons.append("low margin")
    if "object" in read.votes.values():
        reasons.append("objection")
    return QueuedCase(
        key=case.key,
        index=config.review.first_index + place,
        options={option: [o.label for o in offers_on(read.table, option)] for option in case.options},
        reasons=tuple(reasons),
        margin=margin,
        decisions=dict(sorted(counts.items())),
        briefs={role: game.write_report_brief(role) for role in case.seats},
        table=game.write_decision_brief(read_reports(case, episode)),
        reports=dict(episode.reports),
        decision=episode.decision,
        own=[read.decision.option, *sorted(read.decision.fund)] if read.decision else None,
        votes=dict(episode.votes),
    )


def _name(read: ReadEpisode) -> str:
    if read.decision is None:
        return NO_DECISION
    return (
        "escalated"
        if read.decision.escalate
        else " ".join([read.decision.option, *sorted(read.decision.fund)])
    )


def write_queue(run: Run, cases: Sequence[QueuedCase]) -> None:
    """Replace the queue; a case that a person has labelled keeps its label and stays, whatever is new."""
    path = run.path / QUEUE
    labelled = {case.key: case for case in read_queue(path) if case.label} if path.exists() else {}
    kept = [labelled.pop(case.key, case) for case in cases] + list(labelled.values())
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(case.model_dump_json() + "\n" for case in kept).encode())


def read_queue(path: Path) -> list[QueuedCase]:
    """All cases, labelled or not.

    Raises:
        UserError: missing, or a line that is not a case; names file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read review queue {path}: {error}") from None
    cases = []
    for number, line in enumerate(lines, start=1):
        try:
            case = QueuedCase.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UserError(f"{path}:{number}: {where}: {first['msg']}; mend that line") from None
        if case.label is not None:
            _check_label(case, case.label, f"{path}:{number}")
        cases.append(case)
    return cases


def _check_label(case: QueuedCase, label: Label, where: str) -> None:
    if label.escalate != (label.option == "none") or (
        not label.escalate and label.option not in case.options
    ):
        allowed = ", ".join(case.options)
        raise UserError(
            f"{where}: label option {label.option!r} with escalate {label.escalate}:"
            f" use one of {allowed}, or none with escalate true"
        )
    known = case.options.get(label.option, [])
    unknown = [name for name in label.fund if name not in known]
    if unknown:
        raise UserError(
            f"{where}: {unknown[0]!r} has no offer on {label.option}; fund any of: {', '.join(known)}"
        )


def read_labels(path: Path) -> list[LabelledCase]:
    """The labels as training data; cases without one are left out. Raises as `read_queue`."""
    labelled = []
    for case in read_queue(path):
        if case.label is None:
            continue
        label = case.label
        answer: dict[str, Any] = {"option": label.option, "fund": label.fund, "escalate": label.escalate}
        same = case.own is not None and case.own == [label.option, *sorted(label.fund)]
        labelled.append(
            LabelledCase(
                index=case.index,
                reports=case.reports,
                chosen=json.dumps(answer),
                rejected=None if same else case.decision,
            )
        )
    return labelled


def train_review(path: Path) -> None:
    """The review phase as a task of a run."""
    run = Run.open(path)
    if run.is_done(STAGE):
        return
    run.mark_done(STAGE, {"num_cases": build_queue(run)})
