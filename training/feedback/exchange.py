"""Labels to and from Label Studio and Argilla.

An exported file holds one item per line (or, named *.json, a list of them, which both tools' upload pages
take): the texts, and the labels that the item has. What comes back is joined with the label file by the
item's name, so prompts, answers and token ids are always our own; only rulings come from outside.

Formats: labelstud.io/guide/task_format, argilla `Record.from_dict` (docs.argilla.io/latest).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, assert_never
from uuid import NAMESPACE_URL, uuid5

from pydantic import ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors, write_atomic
from training.feedback.labels import (
    Comparison,
    Correction,
    Label,
    Message,
    Provenance,
    Verdict,
    latest_by_reviewer,
    replace_last,
    time_now,
)

Tool = Literal["label-studio", "argilla"]
PREFERRED, CORRECTED, VERDICT, REASON = "preferred", "corrected", "verdict", "reason"
CHOICES = {PREFERRED: ("first", "second", "neither"), VERDICT: ("approved", "rejected")}

LABEL_STUDIO_VIEW = """<View>
  <Text name="prompt" value="$prompt"/>
  <Header value="First"/><Text name="first" value="$first"/>
  <Header value="Second (comparisons)"/><Text name="second" value="$second"/>
  <Choices name="preferred" toName="first"><Choice value="first"/><Choice value="second"/><Choice value="neither"/></Choices>
  <Choices name="verdict" toName="first"><Choice value="approved"/><Choice value="rejected"/></Choices>
  <TextArea name="corrected" toName="first" editable="true" maxSubmissions="1"/>
  <TextArea name="reason" toName="first" editable="true" maxSubmissions="1"/>
</View>
"""  # noqa: E501


def export_labels(labels: Sequence[Label], path: Path, tool: Tool) -> int:
    """Write the items of the labels for one of the tools; how many there are.

    Raises:
        UserError: the file cannot be written.
    """
    items = latest_by_reviewer(labels)
    write = _write_task if tool == "label-studio" else _write_record
    records = [write(item, of_item) for item, of_item in items.items()]
    if path.suffix == ".json":
        content = json.dumps(records, indent=1) + "\n"
    else:
        content = "".join(json.dumps(record) + "\n" for record in records)
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return len(records)


def import_labels(path: Path, known: Sequence[Label], tool: Tool) -> list[Label]:
    """Labels in a file of the tool that are not among the known ones; items are found by their name.

    Raises:
        UserError: not a file of the tool, or an item or ruling that is not known; names file and record.
    """
    items = latest_by_reviewer(known)
    read = _read_task if tool == "label-studio" else _read_record
    found: list[Label] = []
    for number, record in enumerate(_read_records(path), start=1):
        where = f"{path}: record {number}"
        try:
            name = str(record["data"]["item"] if tool == "label-studio" else record["id"])
            if name not in items:
                raise UserError(f"{where} is item {name[:12]}..., which is not in the label file")
            found += read(record, items[name])
        except (KeyError, TypeError, AttributeError, ValueError, ValidationError) as error:
            raise UserError(f"{where} cannot be read as an item of {tool}: {error}") from None
    return found


def _read_records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("["):
            yield from parse_strict_json(text)
        else:
            yield from (parse_strict_json(line) for line in text.splitlines() if line.strip())
    except (OSError, ValueError, AnswerError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def _texts(label: Label) -> dict[str, str]:
    """Field -> what people read there."""
    answers = [_in_words(answer) for answer in label.judged]
    return {"prompt": _in_words(label.prompt), "first": answers[0], "second": "".join(answers[1:])}


def _in_words(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def _answers_to_questions(label: Label, shown: Label) -> dict[str, str]:
    """Question -> the reviewer's answer, for answers in the order in which `shown` has them."""
    given = {REASON: label.reason} if label.reason else {}
    match label:
        case Correction():
            return {CORRECTED: label.corrected[-1].content, **given}
        case Verdict():
            return {VERDICT: label.ruling, **given}
        case Comparison():
            preferred = label.preferred
            if preferred != "neither" and label.judged != shown.judged:
                preferred = "second" if preferred == "first" else "first"
            return {PREFERRED: preferred, **given}
        case _:
            assert_never(label)


def _label_from(answers: Mapping[str, str], shown: Label, reviewer: str, time: datetime) -> Label:
    """A label of the shown item from a reviewer's answers.

    Raises:
        KeyError, ValueError: the question of this item is not answered, or with another choice.
    """
    values = dict(shown) | {
        "reviewer": reviewer,
        "time": time,
        "reason": answers.get(REASON, ""),
        "adjudicates": False,
        "provenance": Provenance(**(dict(shown.provenance) | {"source": "import"})),
    }
    match shown:
        case Correction():
            return Correction(**values | {"corrected": replace_last(shown.answer, answers[CORRECTED])})
        case Verdict():
            _check_choice(VERDICT, answers[VERDICT])
            return Verdict(**values | {"approved": answers[VERDICT] == "approved"})
        case Comparison():
            _check_choice(PREFERRED, answers[PREFERRED])
            return Comparison(**values | {"preferred": answers[PREFERRED]})
        case _:
            assert_never(shown)


def _check_choice(question: str, answer: str) -> None:
    if answer not in CHOICES[question]:
        raise ValueError(f"{question} is {answer!r}; use one of {', '.join(CHOICES[question])}")


def _is_new(label: Label, known: Sequence[Label]) -> bool:
    """Return whether its reviewer has not said the same of the item, as far as the tools show it."""

    def said(one: Label) -> dict[str, str]:
        return {key: text for key, text in _answers_to_questions(one, known[0]).items() if key != REASON}

    return all(label.reviewer != other.reviewer or said(label) != said(other) for other in known)


def _write_task(item: str, labels: Sequence[Label]) -> dict[str, Any]:
    """A task of Label Studio, with an annotation per label."""
    shown = labels[0]
    annotations = []
    for label in labels:
        results = [
            {
                "id": f"{question}-{label.reviewer}",
                "from_name": question,
                "to_name": "first",
                "type": "choices" if question in CHOICES else "textarea",
                "value": {"choices": [answer]} if question in CHOICES else {"text": [answer]},
            }
            for question, answer in _answers_to_questions(label, shown).items()
        ]
        annotations.append({"result": results, "was_cancelled": False, "ground_truth": label.adjudicates})
    data = {"item": item, "case": shown.case, "seat": shown.seat, **_texts(shown)}
    return {"data": data, "annotations": annotations}


def _read_task(task: Mapping[str, Any], known: Sequence[Label]) -> Iterator[Label]:
    for annotation in task.get("annotations", []):
        if annotation.get("was_cancelled") or not annotation["result"]:
            continue
        answers, author = {}, ""
        for result in annotation["result"]:
            question, value = result["from_name"], result["value"]
            answers[question] = str((value["choices"] if "choices" in value else value["text"])[0])
            author = str(result.get("id", "")).removeprefix(f"{question}-")
        if any(label.reviewer == author for label in known):  # one of ours, perhaps changed there
            reviewer = author
        else:
            by = annotation.get("completed_by", "unknown")
            reviewer = f"label-studio:{by.get('email', by.get('id')) if isinstance(by, dict) else by}"
        at = annotation.get("updated_at") or annotation.get("created_at")
        label = _label_from(answers, known[0], reviewer, datetime.fromisoformat(at) if at else time_now())
        if _is_new(label, known):
            yield label


def user_id(reviewer: str) -> str:
    """The id under which an exported reviewer stands in Argilla."""
    return str(uuid5(NAMESPACE_URL, f"emads-reviewer:{reviewer}"))


def _write_record(item: str, labels: Sequence[Label]) -> dict[str, Any]:
    """A record of Argilla, with a response per label and question."""
    shown = labels[0]
    responses: dict[str, list[dict[str, str]]] = {}
    for label in labels:
        for question, answer in _answers_to_questions(label, shown).items():
            value = {"value": answer, "user_id": user_id(label.reviewer)}
            responses.setdefault(question, []).append(value)
    metadata = {"case": shown.case, "seat": shown.seat, "run": shown.provenance.run}
    return {
        "id": item,
        "fields": _texts(shown),
        "metadata": metadata,
        "suggestions": {},
        "responses": responses,
    }


def _read_record(record: Mapping[str, Any], known: Sequence[Label]) -> Iterator[Label]:
    by_user: dict[str, dict[str, str]] = {}
    for question, responses in record.get("responses", {}).items():
        for response in responses:
            by_user.setdefault(str(response["user_id"]), {})[question] = str(response["value"])
    names = {user_id(label.reviewer): label.reviewer for label in known}
    for user, answers in by_user.items():
        label = _label_from(answers, known[0], names.get(user, f"argilla:{user}"), time_now())
        if _is_new(label, known):
            yield label
