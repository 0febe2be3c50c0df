"""Counts of what is reviewed and by whom, and the agreement of reviewers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from evaluation.stats.intervals import cohens_kappa, fleiss_kappa
from serving.review.inbox import KINDS, STATES, list_rows
from serving.review.pages import Visit
from serving.review.room import Room
from training.feedback.labels import Label, latest_by_reviewer

router = APIRouter()
KIND_TITLES = {"seat": "seats to play", "approval": "plans at the gate", "answer": "answers to judge"}
LABEL_TITLES = {"verdict": "approved or rejected", "comparison": "which is better", "correction": "corrected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of reviewers on one kind of label.

    Example: Agreement(kind="verdict", num_items=12, fleiss=0.61, pairs=(("ann", "ben", 12, 0.61),))
    """

    kind: str
    num_items: int  # that two reviewers or more judged
    fleiss: float | None
    pairs: tuple[tuple[str, str, int, float | None], ...]  # two reviewers, their items, Cohen's kappa


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewProgress:
    """The figures of the page of progress."""

    counts: tuple[tuple[str | int, ...], ...]  # kind: waiting, disputed, done
    by_reviewer: tuple[tuple[str, int, int], ...]  # name, rulings at the gate, labels
    agreements: tuple[Agreement, ...]


@router.get("/progress")
async def show_progress(request: Request) -> Response:
    """Show how much is done, by whom, and how far reviewers agree."""
    visit = Visit(request)
    return visit.show("progress.html", progress=describe_progress(visit.room, visit.reviewer))


def describe_progress(room: Room, reviewer: str) -> ReviewProgress:
    """Return the figures, counted as this reviewer's inbox counts."""
    counts = Counter((row.kind, row.progress.state) for row in list_rows(room, reviewer))
    labels = room.list_labels()
    rulings = Counter(
        entry.body["reviewer"]
        for entry in room.audit.read()
        if entry.kind == "ruling" and entry.body["outcome"] == "kept"
    )
    authors = Counter(label.reviewer for label in labels)
    names = sorted({*room.settings.reviewers, *rulings, *authors})
    return ReviewProgress(
        counts=tuple((KIND_TITLES[kind], *(counts[kind, state] for state in STATES)) for kind in KINDS),
        by_reviewer=tuple((name, rulings[name], authors[name]) for name in names),
        agreements=tuple(measure_agreement(labels)),
    )


def measure_agreement(labels: Sequence[Label]) -> list[Agreement]:
    """Return for each kind of label how far its reviewers agree; adjudications are left out."""
    found = []
    for kind, title in LABEL_TITLES.items():
        own = [label for label in labels if label.kind == kind and not label.adjudicates]
        items = [
            {label.reviewer: _say_ruling(label) for label in of_item}
            for of_item in latest_by_reviewer(own).values()
        ]
        judged = [item for item in items if len(item) > 1]
        names = sorted({name for item in judged for name in item})
        found.append(
            Agreement(
                kind=title,
                num_items=len(judged),
                fleiss=fleiss_kappa([list(item.values()) for item in judged]),
                pairs=tuple(_compare(one, other, judged) for one, other in combinations(names, 2)),
            )
        )
    return found


def _compare(one: str, other: str, items: Sequence[Mapping[str, str]]) -> tuple[str, str, int, float | None]:
    pairs = [(item[one], item[other]) for item in items if one in item and other in item]
    return one, other, len(pairs), cohens_kappa(pairs)


def _say_ruling(label: Label) -> str:
    """Return what the label says, the same whichever way round its reviewer saw two answers."""
    if label.kind != "comparison" or label.preferred == "neither":
        return label.ruling
    first, second = ([message.content for message in answer] for answer in label.judged)
    return label.preferred if first <= second else {"first": "second", "second": "first"}[label.preferred]
