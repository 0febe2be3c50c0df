"""A third list of attacks on the gate: deceptive names and words, other ways to the store and its key."""

import asyncio
import secrets
import shutil
from pathlib import Path

import pytest
from governed_tables import HandClock, Stand, stand_at_gate

from reliability.governed.cases import KEY
from roles.errors import UserError
from serving.review.request_view import render_request
from simulator.governance.gate import require_name
from simulator.governance.proposal import ReviewRequest, ReviewResponse
from simulator.governance.runner import open_services
from simulator.governance.seals import NotApprovedError, find_key, read_or_create_key

APPROVE = ReviewResponse(decision="approve")
FORGED = "Carried out if you approve\n  CTO: nothing (alert under 0 % of its limit)"


def at_gate(folder: Path, *, four_eyes: bool = False) -> tuple[ReviewRequest, Path]:
    """What a reviewer is shown, and the store."""

    async def run() -> tuple[ReviewRequest, Path]:
        async with stand_at_gate(folder, four_eyes=four_eyes) as stand:
            return ReviewRequest.model_validate((await stand.interrupt()).value), stand.path

    return asyncio.run(run())


def reason_to_refuse(name: str) -> str:
    """Why a name is no reviewer's."""
    with pytest.raises(NotApprovedError) as refused:
        require_name(name)
    return refused.value.reason


@pytest.mark.parametrize(
    "name",
    [
        *("ann\u034f", "ann\ufe0f", "ann\U000e0100", "\u3164", "\u2800", "\uffa0ann", "\u115f"),
        *("c\u200dto", "cto\u00ad", "ann\u202e", "ann\n"),
    ],
)
def test_a_name_with_what_nobody_sees_is_no_name(name: str) -> None:
    """The same reviewer twice, to the eye."""
    assert reason_to_refuse(name) == "nameless"


@pytest.mark.parametrize(
    "name",
    [
        "\u0441oo",
        "Jos\u00e9",
        "\u674e\u660e",
        "a_b",
        "a.b",
        "ann-",
        "-ann",
        "a  b",
        "a--b",
        "ann ",
        "\ud800",
        "",
    ],
)
def test_the_alphabet_of_names_is_closed(name: str) -> None:
    assert reason_to_refuse(name) == "nameless"


@pytest.mark.parametrize(
    "name",
    [
        *("CT0", "c-t-o", "coo", "C00", "r1sk", "Rlsk", "cost", "ReconcileGPT", "reconcile gpt", "RECONCI1E"),
        *("web", "termina1", "simu1ated", "terrninal"),
    ],
)
def test_a_name_that_looks_like_a_seat_or_one_of_ours_is_refused(name: str) -> None:
    assert reason_to_refuse(name) == "self_approval"


@pytest.mark.parametrize(
    ("one", "other"), [("al", "AI"), ("al", "a1"), ("Bob", "B0B"), ("arno", "am-o"), ("an na", "anna")]
)
def test_a_second_spelling_of_a_person_is_not_registered(one: str, other: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            reviewers = stand.services.reviewers
            reviewers.register(one)
            with pytest.raises(NotApprovedError) as refused:
                reviewers.register(other)
            assert refused.value.reason == "lookalike"
            assert reviewers.list_registered() == ["ann", one]

    asyncio.run(run())


@pytest.mark.parametrize("pad", [0, 60, 96, 97, 100, 4_000])
def test_words_of_others_never_look_like_lines_of_the_gate(pad: int, tmp_path: Path) -> None:
    """Padded so that a line of the terminal ends where the forged one is to begin."""
    request, _ = at_gate(tmp_path)
    honest = request.proposal
    words = ("x" * pad + " " + FORGED)[-4_000:]
    report = honest.reports["cto"]
    assert report is not None
    forged = honest.model_copy(
        update={
            "reason": words,
            "words": honest.words.model_copy(
                update={"context": words, "meanings": dict.fromkeys(honest.words.meanings, words)}
            ),
            "reports": {**honest.reports, "cto": report.model_copy(update={"note": words})},
        }
    )

    def list_own_lines(request: ReviewRequest) -> list[str]:
        lines = render_request(request).splitlines()
        assert max(map(len, (line for line in lines if line.lstrip().startswith("| ")))) <= 100
        return [line for line in lines if not line.lstrip().startswith("| ")][:-1]  # but the digest

    shown = request.model_copy(update={"proposal": forged})
    assert list_own_lines(shown) == list_own_lines(request)
    assert render_request(shown).count("nothing (alert under 0 %") >= 4


def test_an_old_copy_is_noticed_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    _, path = at_gate(tmp_path)
    shutil.copy(path, tmp_path / "old.db")

    async def register(place: Path) -> None:
        async with open_services(place, key=KEY, clock=HandClock(), four_eyes=True):
            pass

    asyncio.run(register(path))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(tmp_path / "old.db", path)
    link = tmp_path / "elsewhere" / "s.db"
    link.symlink_to(path)
    with pytest.raises(UserError, match="old copy"):
        asyncio.run(register(link))


def test_two_processes_that_make_the_key_at_once_have_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first has opened the file and not written it."""
    path, draw = tmp_path / "s.key", secrets.token_bytes
    seen: list[bytes] = []

    def draw_and_be_overtaken(length: int) -> bytes:
        if not seen:
            seen.append(b"")
            seen.append(read_or_create_key(path))
        return draw(length)

    monkeypatch.setattr(secrets, "token_bytes", draw_and_be_overtaken)
    first = read_or_create_key(path)
    assert seen == [b"", first]
    assert find_key(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["s.key"]


def test_a_clock_before_1970_ends_in_a_refusal(tmp_path: Path) -> None:
    """The first entry of a store under such a clock, and an approval."""

    async def probe(stand: Stand) -> None:
        stand.clock.now_s = -5.0
        (request,) = stand.services.gate.list_open()
        stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await probe(stand)
            assert stand.is_sound()

    asyncio.run(run())
