"""The record of a governed episode: what the store says happened, in order, and the same from a file."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from episode_rows import read_governed
from governed_tables import CALM
from team_tables import CHAT

from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating, worlds
from scenarios.team import PlanGame, TeamScenario
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.export.atif import governed_to_atif
from simulator.export.episode_files import SECRET, governed_to_json, write_lines
from simulator.governance.proposal import Proposal, ReviewRequest, ReviewResponse
from simulator.governance.record import GovernedRecord, read_record
from simulator.governance.reviewers import AbsentReviewer, Reviewer
from simulator.governance.runner import open_services, play_governed

SCENARIOS = draw_cases(9)
RESTLESS = SCENARIOS[2]  # with shocks everywhere it is planned again twice


class Telling:
    """Says what it was told to, one word after the other, then approves."""

    name = "ann"

    def __init__(self, responses: Sequence[ReviewResponse]) -> None:
        self.responses = list(responses)

    async def review(self, request: ReviewRequest) -> ReviewResponse:
        return self.responses.pop(0) if self.responses else ReviewResponse(decision="approve")


def play(
    case: TeamScenario, reviewer: Reviewer, *, shock_share: float = 0.0, engine: ScriptedEngine | None = None
) -> GovernedRecord:
    async def run() -> GovernedRecord:
        async with open_services(None, key=KEY) as services:
            services.reviewers.register("ann")
            seating = make_seating(SCENARIOS, engine=engine)
            world = worlds(shock_share=shock_share) if shock_share else CALM
            (episode,) = await play_governed([case], services, seating, reviewer, world)
            return read_record(case, episode, services, stream=seating.stream)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def replanned() -> GovernedRecord:
    return play(RESTLESS, expert_reviewer(error_rate=0.3, seed=30), shock_share=1.0)


def test_every_proposal_is_a_chapter_with_what_came_of_it(replanned: GovernedRecord) -> None:
    kinds = [entry.kind for entry in replanned.log]
    assert len({chapter.digest for chapter in replanned.chapters}) == len(replanned.chapters)
    assert kinds.count("requested") == sum(len(chapter.answers) for chapter in replanned.chapters)
    assert max(chapter.attempt for chapter in replanned.chapters) == kinds.count("replanned") == 2
    committed = [chapter for chapter in replanned.chapters if chapter.is_committed]
    assert [chapter.attempt for chapter in committed] == list(range(len(committed)))
    for chapter in replanned.chapters:
        assert Proposal.model_validate(dict(chapter.proposal)).digest == chapter.digest
        assert chapter.is_committed == (chapter.answers[-1].ruling == "approve")
        parts = {part["role"] for part in chapter.proposal["parts"]}
        assert set(chapter.delivered) == (parts if chapter.is_committed else set())
        told = chapter.observation
        fallen = {
            part["role"]
            for part in chapter.proposal["parts"]
            if told is not None
            and (
                told["kpis"][part["role"]] < part["kpi_floor"]
                or told["lost"][part["role"]] > part["most_lost"]
            )
        }
        assert set(chapter.alerts) == fallen
    for chapter in committed[:-1]:
        assert chapter.alerts
        assert chapter.observation is not None
        assert chapter.observation["shocks"]
    assert replanned.is_log_sound


def test_reports_drafts_and_turns_are_those_that_were_played(replanned: GovernedRecord) -> None:
    episode = replanned.episode
    drafts = [draft.text for chapter in replanned.chapters for draft in chapter.drafts]
    assert drafts[-1] == episode.decision
    assert drafts == [turn.text for turn in episode.trajectories["reconcile"].turns]
    assert all(draft.num_turns == 1 for chapter in replanned.chapters for draft in chapter.drafts)
    for role, report in episode.reports.items():
        reports = [c.reports[role] for c in replanned.chapters if role in c.reports]
        assert reports[-1] == report
        assert episode.trajectories[role].turns[0].text == reports[0]
        assert episode.trajectories[role].ended_by == "answer"
        assert episode.trajectories[role].session == f"g/{replanned.thread}/{role}"
        said = [turn.text for turn in episode.trajectories[role].turns]
        votes = [d.votes[role] for c in replanned.chapters for d in c.drafts if d.votes]
        assert sorted(said) == sorted([*reports, *votes])
    assert set(replanned.chapters[0].reports) == set(episode.reports)
    assert replanned.undecided == ()


def test_an_objection_joins_two_drafts_and_an_edit_needs_none() -> None:
    case = next(
        case
        for case in draw_cases(60)
        if all(case.parts_of(seat, option)[0].keeps_limit for seat in case.seats for option in case.options)
    )
    experts = oracle_team([case], report_habit="measured", funding_habit="exact")
    decide = '{"option": "%s", "fund": [], "escalate": false}'
    edit = ReviewResponse(decision="edit", option="C", feedback="")
    reject = ReviewResponse(decision="reject", feedback="too dear")

    def draft(transcript: str, rng: random.Random) -> str:
        return decide % ("B" if "Objections" in transcript else "A")

    def vote(transcript: str, rng: random.Random) -> str:
        if "Decision A" in transcript.splitlines()[-1]:
            return '{"vote": "object", "reason": "not A"}'
        return experts["cto"](transcript, rng)

    def say_nothing(
        transcript: str, rng: random.Random
    ) -> str:  # seats without a report make a draft contested
        return '{"vote": "accept"}' if "Vote." in transcript else "hm"

    silent = {"coo": say_nothing, "risk": say_nothing}
    engine = ScriptedEngine(CHAT, seeded={**experts, **silent, "reconcile": draft, "cto": vote})
    record = play(case, Telling([edit, reject]), engine=engine)
    first, second, third = record.chapters[:3]
    assert [json.loads(one.text)["option"] for one in first.drafts] == ["A", "B"]
    assert json.loads(first.drafts[0].votes["cto"])["vote"] == "object"
    assert first.drafts[1].message.startswith("Objections cto")
    assert [(a.ruling, a.option, a.reviewer) for a in first.answers] == [("edit", "C", "ann")]
    assert (second.drafts, second.proposal["option"], second.proposal["reason"]) == ((), "C", "")
    assert second.proposal["revision"] == 1
    assert [(a.ruling, a.feedback) for a in second.answers] == [("reject", "too dear")]
    assert third.drafts[0].message.startswith("The reviewer rejects C. too dear")


def test_a_question_and_its_reply_go_with_the_draft_that_follows() -> None:
    case = SCENARIOS[0]
    experts = oracle_team([case], report_habit="lean", funding_habit="exact")
    ask = '{"ask": {"seat": "cto", "option": "A", "cost_at_most": 99}}'

    def decide(transcript: str, rng: random.Random) -> str:
        return experts["reconcile"](transcript, rng) if ask in transcript else ask

    async def run() -> GovernedRecord:
        async with open_services(None, key=KEY) as services:
            engine = ScriptedEngine(CHAT, seeded={**experts, "reconcile": decide})
            seating = replace(make_seating([case], engine=engine), make_game=partial(PlanGame, questions=1))
            (episode,) = await play_governed([case], services, seating, Telling([]), CALM)
            return read_record(case, episode, services, stream=seating.stream)

    record = asyncio.run(run())
    (draft,) = record.chapters[0].drafts
    assert [question.ask for question in draft.asked] == [ask]
    assert draft.num_turns == 2
    added = [o for o in record.chapters[0].proposal["reports"]["cto"]["offers"] if o["option"] == "A"]
    assert len(added) == 2


def test_a_case_that_waits_has_a_record_too() -> None:
    record = play(SCENARIOS[0], AbsentReviewer())
    assert record.status == "waiting"
    (chapter,) = record.chapters
    assert [(a.ruling, a.reviewer, a.answered_at_s) for a in chapter.answers] == [("waiting", "", None)]
    assert (chapter.is_committed, chapter.delivered, chapter.kpis) == (False, (), {})


def test_a_file_gives_back_what_was_written_and_no_permission(
    replanned: GovernedRecord, tmp_path: Path
) -> None:
    path = tmp_path / "e.jsonl"
    write_lines(path, [governed_to_json(replanned)])
    (back,) = read_governed(path)
    assert governed_to_json(back) == governed_to_json(replanned)
    assert back.episode == replanned.episode
    assert back.chapters == replanned.chapters
    text = path.read_text()
    assert not [word for word in SECRET if f'"{word}"' in text]
    secrets = [entry.body[word] for entry in replanned.log for word in SECRET if word in entry.body]
    assert len(secrets) >= 3
    assert not [secret for secret in secrets if isinstance(secret, str) and secret in text]


def test_an_atif_document_tells_the_meeting_and_the_log(replanned: GovernedRecord) -> None:
    document = governed_to_atif(replanned, CHAT)
    steps = document["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    told = [step["extra"]["kind"] for step in steps if step["message"].startswith("Decision log")]
    assert told == [entry.kind for entry in replanned.log]
    assert document["extra"]["status"] == replanned.status
    assert document["extra"]["num_replans"] == 2
    assert document["final_metrics"]["total_steps"] == len(steps)
    assert not [word for word in SECRET if f'"{word}"' in json.dumps(document)]


def test_a_changed_log_is_said_to_be_broken(tmp_path: Path) -> None:
    case = SCENARIOS[0]

    async def run() -> GovernedRecord:
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            services.reviewers.register("ann")
            seating = make_seating(SCENARIOS)
            (episode,) = await play_governed([case], services, seating, Telling([]), CALM)
            services.log.store.execute("DROP TRIGGER decision_log_keeps")
            services.log.store.execute("UPDATE decision_log SET kind = 'refused' WHERE sequence = 2")
            return read_record(case, episode, services, stream=seating.stream)

    assert not asyncio.run(run()).is_log_sound
