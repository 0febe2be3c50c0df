"""Labels from the gate: what people ruled on plans says what ReconcileGPT's last draft was worth.

An approval or a rejection is a verdict on the draft; an edit corrects it to the reviewer's option with that
option's best plan as the page showed it. A plan that no draft stands for (a reviewer's own option, a case
that was handed over without a decision) gives no label, nor does the simulated reviewer.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from roles.base import AnswerError, Role, parse_answer
from roles.team import NO_OPTION, RECONCILER, Decision
from simulator.chat import Chat
from simulator.engines.embedded.hf_chat import HFChat
from simulator.governance.gate import SIMULATED
from simulator.governance.record import Chapter, GateAnswer, GovernedRecord
from training.feedback.labels import Correction, Label, Provenance, VerdictLabel, replace_last
from training.feedback.rows import read_transcript


def label_rulings(
    record: GovernedRecord,
    *,
    chat: HFChat,
    role: Role,
    provenance: Provenance,
    spoken_in: Chat | None = None,
) -> Iterator[Label]:
    """Yield a label for every draft that a person ruled on; `spoken_in`: see `read_transcript`."""
    trajectory = record.episode.trajectories.get(RECONCILER)
    num_turns = 0
    for chapter in record.chapters:
        num_turns += sum(draft.num_turns for draft in chapter.drafts)
        ruling = _find_ruling(chapter)
        if trajectory is None or ruling is None or not _stands_for_plan(chapter):
            continue
        prompt, tools, answer = read_transcript(
            replace(trajectory, turns=trajectory.turns[:num_turns]),
            chat,
            role,
            with_tools=bool(role.tools),
            last=True,
            spoken_in=spoken_in,
        )
        common: dict[str, Any] = {
            "case": record.episode.scenario_key,
            "seat": RECONCILER,
            "prompt": prompt,
            "tools": tools,
            "answer": answer,
            "reviewer": ruling.reviewer,
            "time": datetime.fromtimestamp(ruling.answered_at_s or 0, UTC),
            "reason": ruling.feedback,
            "provenance": provenance,
        }
        if ruling.ruling == "edit":
            corrected = replace_last(answer, _write_decision(chapter, ruling.option or NO_OPTION))
            yield Correction(corrected=corrected, **common)
        else:
            yield VerdictLabel(approved=ruling.ruling == "approve", **common)


def _find_ruling(chapter: Chapter) -> GateAnswer | None:
    """Return what a person ruled on the proposal; None where nobody did, or it did not count."""
    last = chapter.answers[-1]
    is_ruling = last.ruling in ("approve", "edit", "reject")
    return last if is_ruling and last.reviewer not in ("", SIMULATED) else None


def _stands_for_plan(chapter: Chapter) -> bool:
    """Return whether the last draft is the decision that was shown."""
    if not chapter.drafts:
        return False
    try:
        decision = parse_answer(chapter.drafts[-1].text, Decision)
    except AnswerError:
        return False
    return bool(decision.option == chapter.proposal["option"])


def _write_decision(chapter: Chapter, option: str) -> str:
    """Write the decision for an option: its best plan, as the page showed it."""
    fund: list[str] = next(
        (line["fund"] for line in chapter.proposal["options"] if line["option"] == option), []
    )
    decision = Decision(option=option, fund=fund, escalate=option == NO_OPTION)
    return json.dumps(decision.model_dump(mode="json", exclude_defaults=True))
