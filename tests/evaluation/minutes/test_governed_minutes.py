"""Minutes of a governed episode: every plan, ruling, figure and log entry on one page that runs nothing."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from governed_tables import CALM, yes_man
from html_pages import ATTACKS, Page
from legal_role import ROLE as LEGAL
from legal_seat import seat_legal
from team_tables import CHAT, SEATS

from evaluation.minutes.governed import plan_course
from evaluation.minutes.minutes import render_minutes
from evaluation.pages import write_page
from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating, worlds
from roles.registry import ROLES
from scenarios.team import PlanGame, PlayableCase
from scenarios.written.written_case import read_case
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.outcomes import CarriedPlan, FreeOutcomes
from simulator.governance.record import GovernedRecord, read_record, score_governed
from simulator.governance.reviewers import SimulatedReviewer, score_by_worth
from simulator.governance.runner import open_services, play_governed
from simulator.graph.seating import list_roles
from simulator.reward import TeamRewardWeights

ROOT = Path(__file__).parent.parent.parent.parent
SCENARIOS = draw_cases(9)
RESTLESS = SCENARIOS[2]  # with shocks everywhere it is planned again twice
WRITTEN = read_case(ROOT / "examples" / "card-payments.yaml")
ALLOWED_TAGS = re.compile(
    "html|head|meta|title|style|body|main|header|h1|h2|h3|h4|p|b|i|span|code|pre|ol|ul|li|div|section|article"
    "|figure|table|thead|tbody|tr|th|td|details|summary|footer"
)


@pytest.fixture(scope="module")
def replanned() -> GovernedRecord:
    async def run() -> GovernedRecord:
        async with open_services(None, key=KEY, clock=lambda: 1_000_000.0) as services:
            seating = make_seating(SCENARIOS)
            reviewer = expert_reviewer(error_rate=0.3, seed=30)
            (episode,) = await play_governed(
                [RESTLESS], services, seating, reviewer, worlds(shock_share=1.0), rounds=2
            )
            return read_record(RESTLESS, episode, services, stream=seating.stream)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def written() -> GovernedRecord:
    async def run() -> GovernedRecord:
        known: list[PlayableCase] = [WRITTEN]
        engine = ScriptedEngine(CHAT, seeded=oracle_team(known, funding_habit="exact"))
        seating = make_seating([], engine=engine, known=known, stream="w")
        async with open_services(None, key=KEY) as services:
            reviewer = SimulatedReviewer(score_by_worth)
            (episode,) = await play_governed([WRITTEN], services, seating, reviewer, FreeOutcomes)
            return read_record(WRITTEN, episode, services, stream=seating.stream)

    return asyncio.run(run())


def render(record: GovernedRecord) -> str:
    weights, outcomes = TeamRewardWeights(), worlds(shock_share=1.0)(RESTLESS)
    return render_minutes(
        RESTLESS,
        record,
        label="team",
        chat=CHAT,
        verdict=score_governed(record, outcomes, weights) if record.error is None else None,
        weights=weights,
        course=plan_course(record, outcomes),
    )


def test_every_chapter_ruling_figure_and_entry_is_on_the_page(replanned: GovernedRecord) -> None:
    page = Page(render(replanned))
    assert {tag for tag in page.tags if not ALLOWED_TAGS.fullmatch(tag)} == set()
    assert page.text.count("Re-plan 1 of at most 3") >= 1
    assert page.text.count("Re-plan 2 of at most 3") >= 1
    for chapter in replanned.chapters:
        assert f"SHA-256 {chapter.digest}" in page.text
        assert f"risk {chapter.proposal['risk_score']} of 12" in page.text
        for role, kpi in chapter.kpis.items():
            floor = next(part["kpi_floor"] for part in chapter.proposal["parts"] if part["role"] == role)
            assert f"{kpi} % (floor {floor} %)" in page.text
        told = chapter.observation
        for shock in told["shocks"] if told else ():
            assert f"Unforeseen: {shock}" in page.text
        if told:
            assert f"in place are {told['worth']} k$" in page.text
            assert all(words in page.text for words in told["figures"].values())
        for part in chapter.proposal["parts"]:
            assert part["action"] in page.text
    rulings = [answer.ruling for chapter in replanned.chapters for answer in chapter.answers]
    assert page.text.count("Reviewer: simulated") == len(rulings)
    for entry in replanned.log:
        assert entry.hash[:12] in page.text
    assert "chain verified" in page.text
    assert "1970-01-12 13:46:40 UTC" in page.text
    for role in SEATS:
        assert PlanGame(RESTLESS, "short").write_report_brief(role).splitlines()[-1] in page.text
    assert "R = V (1 + c C) / (1 + c)" in page.text


def test_chapters_stand_in_order_and_say_why_they_were_opened(replanned: GovernedRecord) -> None:
    text = Page(render(replanned)).text
    places = [text.index(chapter.digest) for chapter in replanned.chapters]
    assert places == sorted(places)
    assert text.count("Monitoring raised an alert.") == sum(bool(c.alerts) for c in replanned.chapters)
    reasons = text.count("Monitoring raised an alert on option") + text.count(
        "The reviewer rejected the proposal"
    )
    reasons += text.count("The reviewer put another option in place")
    assert reasons == len(replanned.chapters) - 1


def test_a_broken_log_and_a_wait_are_said(replanned: GovernedRecord) -> None:
    broken = Page(render(replace(replanned, is_log_sound=False, status="waiting"))).text
    assert "chain broken" in broken
    assert "chain verified" not in broken
    assert "Waits for a reviewer" in broken


def test_a_written_case_shows_words_and_no_score(written: GovernedRecord) -> None:
    page = Page(render_minutes(WRITTEN, written, label="team", chat=CHAT))
    assert WRITTEN.title in page.text
    assert WRITTEN.meanings["B"] in page.text
    assert " ".join(WRITTEN.notes["risk"].split()) in page.text
    assert "Not scored: nobody knows the right answer" in page.text
    assert "In truth" not in page.text
    assert "really worth" not in page.text
    assert "V = " not in page.text


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_words_are_shown_and_do_nothing(attack: str, replanned: GovernedRecord) -> None:
    first = replanned.chapters[0]
    drafts = tuple(replace(draft, text=attack, message=attack) for draft in first.drafts)
    answers = tuple(
        replace(answer, feedback=attack, reviewer=attack, option=attack) for answer in first.answers
    )
    proposal = {**first.proposal, "conditions": [attack], "precedents": [attack]}
    told = {**(first.observation or {}), "shocks": [attack], "figures": dict.fromkeys(SEATS, attack)}
    spoiled = replace(
        first,
        drafts=drafts,
        answers=answers,
        proposal=proposal,
        observation=told if first.observation else None,
        reports=dict.fromkeys(SEATS, attack),
    )
    episode = replace(replanned.episode, reports=dict.fromkeys(SEATS, attack))
    log = (replace(replanned.log[0], body={**replanned.log[0].body, "feedback": attack}), *replanned.log[1:])
    hostile = replace(
        replanned, chapters=(spoiled, *replanned.chapters[1:]), episode=episode, error=attack, log=log
    )
    raw = render(hostile)
    page, clean = Page(raw), Page(render(replanned))
    assert {tag for tag in page.tags if not ALLOWED_TAGS.fullmatch(tag)} == set()
    assert {name for _, name, _ in page.attributes} <= {name for _, name, _ in clean.attributes}
    assert ("{{ 7 * 7 }}" in attack) == ("{{ 7 * 7 }}" in page.text)
    assert not any(char in raw for char in "\u202e\x1b")
    links = [value for _, name, value in page.attributes if name in ("href", "src", "action", "onclick")]
    assert links == []


def test_the_page_forbids_scripts_and_network(written: GovernedRecord, tmp_path: Path) -> None:
    path = write_page(tmp_path / "a" / "m.html", render_minutes(WRITTEN, written, label="team"))
    raw = path.read_text()
    policy = next(v for _, name, v in Page(raw).attributes if name == "content" and "default-src" in v)
    assert "default-src 'none'" in policy
    assert not re.search(r"https?://|@import|url\((?!#)", raw)
    assert [one.name for one in path.parent.iterdir()] == ["m.html"]


def test_the_world_of_a_written_case_is_what_was_reported_less_a_shock() -> None:
    upgrades = {
        seat: facts.facts["upgrades"]["B"]
        for seat, facts in WRITTEN.seats.items()
        if facts.facts.get("upgrades", {}).get("B")
    }
    bought = {seat: (next(iter(own)),) for seat, own in upgrades.items()}
    costs = {seat: upgrades[seat][choice[0]]["cost"] for seat, choice in bought.items()}
    worths = {seat: upgrades[seat][choice[0]]["worth"] for seat, choice in bought.items()}
    plan = CarriedPlan(option="B", funded=bought, costs=costs, worths=worths)
    calm = FreeOutcomes(WRITTEN, shock_share=0.0).observe([], plan)
    assert calm["worth"] == calm["promised"] == WRITTEN.public.base["B"] + sum(worths.values())
    assert (calm["shocks"], set(calm["kpis"].values()), set(calm["lost"].values())) == ([], {100}, {0})
    outcomes = [FreeOutcomes(WRITTEN, seed=seed, shock_share=1.0) for seed in range(20)]
    told = [one.observe([], plan) for one in outcomes]
    for world in told:
        hit = [role for role, lost in world["lost"].items() if lost]
        assert len(hit) == 1
        assert world["worth"] == world["promised"] - world["lost"][hit[0]]
    assert len({str(world) for world in told}) > 10
    later = outcomes[0].continue_case([plan])
    assert later.public.base["B"] == told[0]["worth"]
    assert later.public.budget == WRITTEN.public.budget + outcomes[0].reserve - sum(costs.values())
    for seat, choice in bought.items():
        names = {name for part in later.parts_of(seat, "B") or () for name in part.choice}
        assert not names & set(choice)


def test_a_role_from_outside_stands_in_every_part() -> None:
    case = seat_legal(draw_cases(3)[2])
    roles = {**ROLES, LEGAL.name: LEGAL}
    known: list[PlayableCase] = [case]
    experts = oracle_team(known, report_habit="measured", funding_habit="exact")

    async def run() -> GovernedRecord:
        seating = replace(
            make_seating([case], engine=ScriptedEngine(CHAT, seeded=experts), known=known),
            roles=roles,
            team={role: role for role in list_roles(case)},
        )
        async with open_services(None, key=KEY) as services:
            (episode,) = await play_governed([case], services, seating, yes_man(), CALM)
            return read_record(case, episode, services, stream=seating.stream)

    record = asyncio.run(run())
    page = Page(render_minutes(case, record, label="team", chat=CHAT, roles=roles)).text
    assert "Legal reads" in page
    assert {part["role"] for part in record.chapters[0].proposal["parts"]} == set(case.seats)
    assert [one.role for one in record.episode.trajectories.values()] == [*case.seats, "reconcile"]
