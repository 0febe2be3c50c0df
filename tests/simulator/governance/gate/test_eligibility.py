"""Reviewers: registered people rule, seats and blank names do not, the simulated one never for a person."""

import asyncio
from pathlib import Path

import pytest
from governed_tables import CALM, Person, stand_at_gate, yes_man

from emads.cli import main
from reliability.governed.cases import KEY, draw_cases, make_seating
from simulator.governance.proposal import ReviewResponse
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError

APPROVE = ReviewResponse(decision="approve")
NO_REVIEWERS = ("cto", "CTO", "reconcile", " ", "ann ", "ann\n")


@pytest.mark.parametrize("name", NO_REVIEWERS)
def test_seats_and_blank_names_are_no_reviewers(name: str, tmp_path: Path) -> None:
    """Neither at the desk, nor with a signature that the key's holder made."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            desk, (request,) = stand.services.gate, stand.services.gate.list_open()
            with pytest.raises(NotApprovedError):
                stand.services.reviewers.register(name)
            with pytest.raises(NotApprovedError):
                desk.submit(request.interrupt_id, request.digest, APPROVE, name)
            await stand.rule_past_desk(reviewer=name)
            assert stand.count("committed") == 0
            assert stand.kinds()[-2:] == ["refused", "requested"]

    asyncio.run(run())


def test_only_registered_people_are_signed_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            (request,) = stand.services.gate.list_open()
            with pytest.raises(NotApprovedError, match="nobody registered"):
                stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "mallory")
            stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")

    asyncio.run(run())


def test_the_simulated_reviewer_never_rules_where_a_person_was_asked(tmp_path: Path) -> None:
    cases, path = draw_cases(1), tmp_path / "s.db"

    async def run() -> None:
        for reviewer, status in (
            (AbsentReviewer(), "waiting"),
            (yes_man(), "waiting"),
            (Person(), "completed"),
        ):
            async with open_services(path, key=KEY) as services:
                services.reviewers.register("ann")
                (episode,) = await play_governed(cases, services, make_seating(cases), reviewer, CALM)
                assert episode.status == status
        async with stand_at_gate(tmp_path) as stand:
            stand.services.reviewers.note_asked(await stand.request(), "ann")
            await stand.rule_past_desk(reviewer="simulated")
            assert stand.count("committed") == 0

    asyncio.run(run())


def test_the_command_says_that_a_case_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end_of_input(prompt: str) -> str:
        raise EOFError

    from emads.seats.person import TerminalReviewer
    from simulator.terminal import Terminal

    monkeypatch.setattr(
        "emads.commands.simulate.TerminalReviewer",
        lambda: TerminalReviewer(
            Terminal(read_line=end_of_input, write=lambda text: None, is_terminal=lambda: True)
        ),
    )
    call = ["simulate", "--protocol", "full", "--team", "scripted", "--db", str(tmp_path / "s.db")]
    assert main([*call, "--reviewer", "terminal"]) == 0
    for more in ([], ["--reviewer", "simulated"]):
        assert main([*call, *more]) == 2
        assert "waits for a person; run again with --reviewer terminal" in capsys.readouterr().err
    assert main([*call, "--index", "1"]) == 2
    assert "name --reviewer terminal, web or simulated" in capsys.readouterr().err
    assert main([*call, "--index", "1", "--reviewer", "simulated"]) == 0


def test_four_eyes_need_two_reviewers(tmp_path: Path) -> None:
    cases, path = draw_cases(1), tmp_path / "s.db"

    async def run() -> None:
        async with open_services(path, key=KEY, four_eyes=True) as services:
            desk, seating = services.gate, make_seating(cases)
            services.reviewers.register("ann")
            services.reviewers.register("bob")
            (episode,) = await play_governed(cases, services, seating, Person(), CALM)
            assert episode.status == "waiting"
            (request,) = desk.list_open()
            with pytest.raises(NotApprovedError, match="a second reviewer must approve"):
                desk.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            desk.submit(request.interrupt_id, request.digest, APPROVE, "bob")
            (episode,) = await play_governed(cases, services, seating, AbsentReviewer(), CALM)
            assert episode.status == "completed"

    asyncio.run(run())


def test_four_eyes_are_checked_at_the_gate_too(tmp_path: Path) -> None:
    """One approval alone, and a second one of the same person past the desk."""

    async def run() -> None:
        async with stand_at_gate(tmp_path, four_eyes=True) as stand:
            await stand.rule()
            assert stand.count("committed") == 0
            await stand.rule_past_desk(reviewer="ANN")
            assert stand.count("committed") == 0
            assert "refused" in stand.kinds()

    asyncio.run(run())


def test_the_command_takes_a_registration_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the person has approved before does not count any more."""
    path = tmp_path / "s.db"
    path.with_name("s.db.key").write_text(KEY.hex())
    path.with_name("s.db.key").chmod(0o600)
    cases = draw_cases(1)

    async def play(*, approve: bool) -> str:
        async with open_services(path, key=KEY) as services:
            if approve:
                services.reviewers.register("ann")
            (episode,) = await play_governed(cases, services, make_seating(cases), AbsentReviewer(), CALM)
            for request in services.gate.list_open() if approve else ():
                services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            return episode.status

    assert asyncio.run(play(approve=True)) == "waiting"
    assert main(["review", str(path), "--remove", "ann"]) == 0
    assert "ann rules on nothing" in capsys.readouterr().out
    assert main(["review", str(path), "--remove", "ann"]) == 2
    assert "nobody registered the reviewer 'ann'" in capsys.readouterr().err
    assert asyncio.run(play(approve=False)) == "waiting"  # for another ruling: the approval was refused
