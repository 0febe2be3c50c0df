"""Rulings of people at the gate become labels of ReconcileGPT's drafts, token for token."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM
from tiny_models import tiny_chat

from emads.commands.simulate import keep_ruling_labels
from emads.run_weights import RunWeights
from emads.seats.players import RunPlayer, Seats
from emads.team import Team
from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating
from roles.team import RECONCILER
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.proposal import ReviewResponse
from simulator.governance.record import GovernedRecord, read_record
from simulator.governance.reviewers import AbsentReviewer, Reviewer
from simulator.governance.runner import open_services, play_governed
from simulator.graph.seating import Seating, list_prompt_roles
from training.config.run_config import RunConfig
from training.feedback.labels import Correction, Label, Provenance, VerdictLabel, read_labels
from training.feedback.rows import correction_rows, encode_answer, label_rulings

CASES = draw_cases(3)
PROVENANCE = Provenance(run="demo", weights="marl", style="short", source="gate")
RULINGS = ("approve", "reject", "edit")


def seat_experts(chat: Chat) -> Seating:
    experts = oracle_team(CASES, report_habit="measured", funding_habit="exact")
    engine = ScriptedEngine(chat, seeded=experts)
    return replace(make_seating(CASES, engine=engine), chat=chat)


def play(seating: Seating, reviewer: Reviewer | None = None) -> list[GovernedRecord]:
    """A person approves the first plan, rejects the second and edits the third, and approves what follows."""

    async def run() -> list[GovernedRecord]:
        async with open_services(None, key=KEY) as services:
            desk = services.gate
            services.reviewers.register("ann")
            for ruling in (*RULINGS, "") if reviewer is None else ():
                await play_governed(CASES, services, seating, AbsentReviewer(), CALM)
                for request in desk.list_open():
                    given: dict[str, Any] = {"decision": "approve"}
                    proposal = request.proposal
                    place = [case.key for case in CASES].index(proposal.case)
                    if ruling == "approve" and RULINGS[place] == "reject":
                        given = {"decision": "reject", "feedback": "Too dear."}
                    elif ruling == "approve" and RULINGS[place] == "edit":
                        others = [line.option for line in proposal.options if line.worth is not None]
                        option = next(one for one in others if one != proposal.option)
                        given = {"decision": "edit", "option": option}
                    desk.submit(request.interrupt_id, request.digest, ReviewResponse(**given), "ann")
            played = await play_governed(CASES, services, seating, reviewer or AbsentReviewer(), CALM)
            return [
                read_record(case, one, services, stream=seating.stream)
                for case, one in zip(CASES, played, strict=True)
            ]

    return asyncio.run(run())


def read_rulings(records: list[GovernedRecord], seating: Seating, **options: Any) -> list[list[Label]]:
    role = list_prompt_roles(CASES[0], seating.make_game(CASES[0]), seating.kinds)[RECONCILER]
    return [
        list(label_rulings(one, chat=tiny_chat(), role=role, provenance=PROVENANCE, **options))
        for one in records
    ]


@pytest.fixture(scope="module")
def ruled() -> list[GovernedRecord]:
    return play(seat_experts(tiny_chat()))


def test_approvals_and_rejections_are_verdicts_and_edits_corrections_token_for_token(
    ruled: list[GovernedRecord],
) -> None:
    records, seating = ruled, seat_experts(tiny_chat())
    approved, rejected, edited = read_rulings(records, seating)
    (verdict,) = approved
    assert isinstance(verdict, VerdictLabel)
    assert (verdict.approved, verdict.reviewer, verdict.provenance) == (True, "ann", PROVENANCE)
    draft = records[0].chapters[0].drafts[-1]
    assert verdict.answer[-1].content == draft.text
    assert verdict.prompt[-1].content == draft.message
    refused, after = rejected[:2]
    assert isinstance(refused, VerdictLabel)
    assert isinstance(after, VerdictLabel)
    assert (refused.approved, refused.reason, after.approved) == (False, "Too dear.", True)
    assert len(after.prompt) > len(refused.prompt)  # the second draft answers the rejection
    assert refused.answer[-1].content == records[1].chapters[0].drafts[-1].text
    (correction,) = edited  # the approval of the reviewer's own option says nothing of a draft
    assert isinstance(correction, Correction)
    chosen = records[2].chapters[1].proposal
    fund = [line["fund"] for line in chosen["options"] if line["option"] == chosen["option"]]
    assert f'"option": "{chosen["option"]}"' in correction.corrected[-1].content
    assert all(f'"{label}"' in correction.corrected[-1].content for label in fund[0])
    turns = records[0].episode.trajectories[RECONCILER].turns[: draft.num_turns]
    row = encode_answer(verdict, verdict.answer, tiny_chat(), written_only=False)
    assert row.token_ids == tuple(i for turn in turns for i in (*turn.context_ids, *turn.completion_ids))
    (fixed,) = correction_rows([correction], tiny_chat())
    taught = tuple(i for i, bit in zip(fixed.token_ids, fixed.loss_mask, strict=True) if bit)
    assert tiny_chat().decode(taught) == correction.corrected[-1].content


def test_labels_of_a_transcript_in_another_chat_keep_its_words_and_no_ids(
    ruled: list[GovernedRecord],
) -> None:
    seating = make_seating(CASES)
    records = play(seating)
    (verdict,), *_ = read_rulings(records, seating, spoken_in=seating.chat)
    (same,), *_ = read_rulings(ruled, seat_experts(tiny_chat()))
    assert [one.content for one in verdict.prompt] == [one.content for one in same.prompt]
    assert all(one.token_ids is None for one in (*verdict.prompt, *verdict.judged[0]))


def test_the_simulated_reviewer_labels_nothing() -> None:
    seating = seat_experts(tiny_chat())
    records = play(seating, expert_reviewer())
    assert any(one.chapters[0].answers for one in records)
    assert read_rulings(records, seating) == [[], [], []]


def test_labels_are_kept_beside_the_store_once_however_often_a_case_is_taken_up(
    ruled: list[GovernedRecord], tmp_path: Path
) -> None:
    seating = seat_experts(tiny_chat())
    weights: Any = RunWeights(
        source="run demo",
        config=RunConfig(name="demo"),
        stage="marl",
        engine=RunConfig().engine,
        models={},
        base=None,
        chat=tiny_chat(),
    )
    player = RunPlayer(Path("runs/demo"), "marl")
    team = Team(seats=Seats({}, player), runs={player: weights})
    store = tmp_path / "s.db"
    told = [keep_ruling_labels(CASES, ruled, team, seating, store) for _ in range(2)]
    labels = read_labels(tmp_path / "s.db.labels.jsonl")
    line = f"labels:   {tmp_path / 's.db.labels.jsonl'} ({len(labels)} from rulings of people)"
    assert told == [[line], []]
    assert len(labels) >= 4
