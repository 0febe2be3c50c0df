"""From labels to token rows, and from what people ruled at the gate to labels.

Sampled words keep their token ids; loss is only where a stage learns. A correction trains what the reviewer
wrote. An approved answer, comparisons and verdicts train the whole answer, tool output masked out.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from roles.base import Answer, AnswerError, Role, Tool, parse_answer
from roles.errors import UserError
from roles.team import NO_OPTION, RECONCILER, Decision
from simulator.agents.dialogue import read_messages
from simulator.chat import Chat
from simulator.engines.embedded.hf_chat import HFChat
from simulator.governance.gate import SIMULATED
from simulator.governance.record import Chapter, GateAnswer, GovernedRecord
from simulator.records import Trajectory
from training.data.demonstrations import TokenRow
from training.feedback.labels import (
    Comparison,
    Correction,
    Label,
    Message,
    Provenance,
    VerdictLabel,
    replace_last,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow:
    """Two rows with one prompt. Example: PreferenceRow(chosen=better, rejected=worse)"""

    chosen: TokenRow
    rejected: TokenRow


def read_transcript(
    trajectory: Trajectory,
    chat: HFChat,
    role: Role,
    *,
    with_tools: bool,
    last: bool = False,
    spoken_in: Chat | None = None,
) -> tuple[tuple[Message, ...], tuple[dict[str, object], ...], tuple[Message, ...]]:
    """Prompt, tools and answer of what a role did on the first or last message to it, as labels hold them.

    `spoken_in`: the transcript's chat where it is not the policy's own; its token ids are then left out.
    """
    spoken: list[Message] = []
    for message in read_messages(trajectory, spoken_in or chat, role):
        ids = None if message.turn is None or spoken_in is not None else message.turn.completion_ids
        source = "assistant" if message.source == "agent" else message.source
        spoken.append(Message(role=source, content=message.text, token_ids=ids))
    users = [place for place, message in enumerate(spoken) if message.role == "user"]
    asked = users[-1] if last else users[0]
    end = next((place for place in users if place > asked), len(spoken))
    opening = Message(role="system", content=chat.system_text(role))
    tools = tuple(tool.as_chat_tool() for tool in role.tools) if with_tools else ()
    return (opening, *spoken[: asked + 1]), tools, tuple(spoken[asked + 1 : end])


def encode_answer(label: Label, answer: Sequence[Message], chat: HFChat, *, written_only: bool) -> TokenRow:
    """The label's prompt and one answer as token ids; the mask is on assistant messages of the answer.

    Messages with token ids keep them as far as they are this chat's own; others are encoded. With
    `written_only` the mask is on messages without token ids alone.
    """
    ids = list(_open_prompt(label, chat))
    mask = [0] * len(ids)
    said = [(message, False) for message in label.prompt[2:]] + [(message, True) for message in answer]
    observed: list[str] = []
    for place, (message, is_answer) in enumerate(said):
        if message.role == "tool":
            observed.append(message.content)
            if (
                place + 1 < len(said)
                and said[place + 1][0].role == "tool"
                and said[place + 1][1] == is_answer
            ):
                continue  # results of one turn's calls are told together
            new, observed = chat.observe(*observed), []
        elif message.role == "user":
            new = chat.ask(message.content)
        else:
            new = _own_ids(message, chat)
        is_own = is_answer and message.role == "assistant"
        is_trained = is_own and (message.token_ids is None or not written_only)
        ids, mask = [*ids, *new], [*mask, *[int(is_trained)] * len(new)]
    return TokenRow(token_ids=tuple(ids), loss_mask=tuple(mask))


def correction_rows(labels: Sequence[Label], chat: HFChat, *, with_approved: bool = False) -> list[TokenRow]:
    """One row per correction, and one per approved answer that nobody corrected `with_approved`."""
    corrected = {(one.seat, one.prompt, one.answer) for one in labels if isinstance(one, Correction)}
    rows = []
    for label in labels:
        if isinstance(label, Correction):
            rows.append(encode_answer(label, label.corrected, chat, written_only=True))
        elif (
            with_approved
            and isinstance(label, VerdictLabel)
            and label.approved
            and (label.seat, label.prompt, label.answer) not in corrected
        ):
            rows.append(encode_answer(label, label.answer, chat, written_only=False))
    return rows


def preference_rows(labels: Iterable[Label], chat: HFChat) -> list[PreferenceRow]:
    """One pair per comparison in which one answer was preferred."""
    found = []
    for label in labels:
        if not isinstance(label, Comparison) or label.preferred == "neither":
            continue
        answers = label.judged if label.preferred == "first" else label.judged[::-1]
        better, worse = (encode_answer(label, answer, chat, written_only=False) for answer in answers)
        found.append(PreferenceRow(chosen=better, rejected=worse))
    return found


def split_rows(
    rows: Sequence[PreferenceRow], share: float, seed: int
) -> tuple[list[PreferenceRow], list[PreferenceRow]]:
    """(kept for training, kept out of it); prompts that occur in one part do not occur in the other."""
    prompts = sorted({_prompt_of(row.chosen) for row in rows})
    random.Random(f"validation/{seed}").shuffle(prompts)
    held_out = set(prompts[: round(share * len(prompts))])
    training = [row for row in rows if _prompt_of(row.chosen) not in held_out]
    return training, [row for row in rows if _prompt_of(row.chosen) in held_out]


def _prompt_of(row: TokenRow) -> tuple[int, ...]:
    return row.token_ids[: row.loss_mask.index(1)]


def _open_prompt(label: Label, chat: HFChat) -> tuple[int, ...]:
    system, user = label.prompt[:2]
    tools = []
    for tool in label.tools:
        try:
            found = tool["function"]
            tools.append(
                Tool(name=found["name"], description=found["description"], parameters=found["parameters"])
            )
        except (KeyError, TypeError):
            raise UserError(f"a label of {label.case} has a tool that is not in the chat format") from None
    name = hashlib.sha256(f"{system.content}/{label.tools}".encode()).hexdigest()
    role = Role(
        name=name,
        title=system.content.removesuffix("."),
        mandate=system.content,
        answer=Answer,
        tools=tuple(tools),
    )
    return chat.open(role, user.content, with_tools=bool(tools))


def _own_ids(message: Message, chat: HFChat) -> tuple[int, ...]:
    """The sampled ids, where this tokenizer reads the message's words from them; else the words encoded."""
    ids = message.token_ids
    if ids is not None and chat.decode(ids) == message.content:
        return ids
    return (*chat.encode(message.content), chat.end_id)


def label_rulings(
    record: GovernedRecord, *, chat: HFChat, role: Role, provenance: Provenance, spoken_in: Chat | None = None
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
