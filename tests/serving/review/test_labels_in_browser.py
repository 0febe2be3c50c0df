"""Labels in the browser: verdicts, comparisons and corrections, double review and adjudication."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from html_pages import Page
from review_site import OTHER, OWN, Browser, Site, make_item, open_site

from serving.review.progress import measure_agreement
from training.feedback.labels import Comparison, Correction, QueuedItem, VerdictLabel, read_labels

ITEM = make_item()


def on_queue(
    folder: Path, play: Callable[[Site], Coroutine[Any, Any, None]], *items: QueuedItem, **options: Any
) -> None:
    async def run() -> None:
        async with open_site(folder, num_cases=0, items=items or [ITEM], **options) as site:
            await play(site)

    asyncio.run(run())


async def label(browser: Browser, action: str, item: QueuedItem = ITEM, **fields: Any) -> Any:
    path = f"/answers/{item.id}"
    await browser.open(path)
    return await browser.send(path, action=action, **fields)


def test_each_form_gives_a_label_of_its_kind(tmp_path: Path) -> None:
    items = [make_item(number) for number in range(3)]

    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        assert (await label(ann, "approve", items[0])).status_code == 303
        page = (await ann.open(f"/answers/{items[1].id}")).text
        is_turned = page.index("&#34;A&#34;") < page.index("&#34;B&#34;")
        assert (await label(ann, "left", items[1], reason="cheaper")).status_code == 303
        fields = {"answer.option": "B", "answer.fund": ["risk"], "answer.reason": "B holds."}
        assert (await label(ann, "correct", items[2], **fields)).status_code == 303
        verdict, comparison, correction = read_labels(site.room.settings.labels)
        assert isinstance(verdict, VerdictLabel)
        assert verdict.approved
        assert verdict.provenance.source == "web"
        assert isinstance(comparison, Comparison)
        assert comparison.preferred == ("second" if is_turned else "first")
        assert (comparison.first[-1].content, comparison.second[-1].content) == (OWN, OTHER)
        assert comparison.first[-1].token_ids == (5, 2)
        assert isinstance(correction, Correction)
        corrected = '{"option": "B", "fund": ["risk"], "escalate": false, "reason": "B holds."}'
        assert correction.corrected[-1].content == corrected
        assert [one.reviewer for one in (verdict, comparison, correction)] == ["ann"] * 3

    on_queue(tmp_path, play, *items)


def test_a_correction_is_checked_and_what_was_typed_stays(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        for fields, why in (
            ({"answer.option": "C"}, "options are A, B"),
            ({"answer.option": "none"}, "none goes with escalate"),
            ({"answer.option": "A", "answer.fund": ["risk"]}, "risk has no offer on A"),
            ({"answer.option": "A", "answer.reason": "x" * 601}, "at most 600 characters"),
        ):
            answer = await label(ann, "correct", **fields)
            assert answer.status_code == 422
            assert why in answer.text
        assert "x" * 601 in answer.text
        shown = Page(answer.text)
        described = [one["aria-describedby"] for one in shown.named("textarea") if "aria-invalid" in one]
        assert described == ["answer-reason-mistake"]
        assert (await label(ann, "reject")).status_code == 422
        assert (await label(ann, "left")).status_code == 422
        assert (await label(ann, "dance", reason="x")).status_code == 422
        assert site.room.list_labels() == []

    on_queue(tmp_path, play)


def test_double_review_hides_others_labels_and_a_third_person_settles_a_dispute(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann, ben, cleo = [await site.signed_in(name) for name in ("ann", "ben", "cleo")]
        assert (await label(ann, "approve", reason="fine by ann")).status_code == 303
        assert (await label(ann, "reject", reason="again")).status_code in (403, 409)
        assert "fine by ann" not in (await ben.open(f"/answers/{ITEM.id}")).text
        assert (await label(ben, "reject", reason="too dear")).status_code == 303
        assert "reviewers disagree" in (await ann.open("/?state=disputed")).text
        assert (await label(ann, "approve")).status_code in (403, 409)
        page = (await cleo.open(f"/answers/{ITEM.id}")).text
        assert "Yours decides" in page
        assert "fine by ann" in page
        assert (await label(cleo, "reject", reason="too dear indeed")).status_code == 303
        assert [one.adjudicates for one in site.room.list_labels()] == [False, False, True]
        assert "labelled" in (await ann.open("/?state=done")).text
        (verdicts, *_) = measure_agreement(site.room.list_labels())
        assert (verdicts.num_items, verdicts.pairs) == (1, (("ann", "ben", 1, 0.0),))
        progress = await ann.open("/progress")
        assert progress.status_code == 200

    on_queue(tmp_path, play, labels_per_item=2)


def test_a_queue_that_grows_while_the_app_runs_is_seen(tmp_path: Path) -> None:
    from training.feedback.labels import write_queue

    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        assert "Bank case 7" not in (await ann.open("/")).text
        assert site.room.settings.queue is not None
        write_queue(site.room.settings.queue, [ITEM, make_item(7)])
        assert "Bank case 7" in (await ann.open("/")).text
        assert "Bank case 7" not in (await ann.open("/?words=bank+team/train/0/0/2")).text
        assert "Bank case 7" not in (await ann.open("/?kind=approval")).text

    on_queue(tmp_path, play)
