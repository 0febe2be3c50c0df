"""Minutes: one page that says who read, looked up, wrote and voted what, with nothing in it that runs."""

import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from html_pages import ATTACKS, Page
from team_tables import CHAT, SAMPLING, SEATS, TEAM, oracle_engine

from evaluation.minutes.meeting import list_options
from evaluation.minutes.minutes import minutes_file, render_minutes, write_index
from evaluation.pages import write_page
from roles.registry import ROLES
from scenarios.base import ToolCall
from scenarios.company.coordination import is_hidden_profile
from scenarios.team import PlanGame, TeamScenario, generate
from scenarios.team.offers import EMPTY_REPORT, is_needed, is_vetoed
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent import Agent
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.graph.team_graph import team_graph
from simulator.reading import read_episode, read_reports
from simulator.records import Episode, Question
from simulator.reward import TeamRewardWeights, score_episode
from simulator.tool_calls import format_tool_call

ROOT = Path(__file__).parent.parent.parent.parent
WEIGHTS = TeamRewardWeights()
ALLOWED_TAGS = re.compile(
    "html|head|meta|title|style|body|main|header|h1|h2|h3|p|b|br|span|code|pre|ul|li|div|section|article|figure"
    "|table|thead|tbody|tr|th|td|details|summary|footer"
)


def draw_scenarios(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def play(cases: list[TeamScenario] | list[FreeCase], rounds: int = 1) -> list[Episode]:
    engine = oracle_engine(cases, report_habit="measured", funding_habit="exact")
    return asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, rounds=rounds))


def render(case: TeamScenario, episode: Episode, **changed: object) -> str:
    verdict = score_episode(case, episode, WEIGHTS) if episode.error is None else None
    given = {"label": "expert team", "chat": CHAT, "verdict": verdict, "weights": WEIGHTS, **changed}
    return render_minutes(case, episode, **given)  # type: ignore[arg-type]


def hospital() -> FreeCase:
    return read_case(ROOT / "examples" / "hospital-imaging.yaml")


def is_safe(page: Page) -> bool:
    """No element or attribute that runs, loads or sends anything."""
    names = {name for _, name, _ in page.attributes}
    return (
        all(map(ALLOWED_TAGS.fullmatch, page.tags))
        and not {"src", "href", "action", "srcset"} & names
        and not any(name.startswith("on") for name in names)
    )


def test_the_minutes_read_in_the_order_of_the_meeting() -> None:
    cases = draw_scenarios(6)
    for case, episode in zip(cases, play(cases), strict=True):
        page = Page(render(case, episode))
        parts = ["Minutes of the expert team", case.key, "The case", case.case.situation.split()[0]]
        parts += [f"At most {case.case.budget} k$", "The seats' work"]
        for role in SEATS:
            brief = PlanGame(case).write_report_brief(role).split("\n")
            parts += [f"{ROLES[role].title} reads", " ".join(brief[-2].split()), " ".join(brief[-1].split())]
            parts += [
                "All that its tools could tell",
                "looks up measure(option=",
                "hard limit",
                "reports",
            ]
        parts += ["The table", "All that ReconcileGPT learns", "Conflicts", "Decision and votes"]
        parts += ["ReconcileGPT", "together cost", "CTO accepts right"]
        parts += ["What ReconcileGPT read, looked up and wrote", "Budget:"]
        parts += ["Scores", "V =", "V, value", "R, team reward", "How the case ran", "footer"]
        position = 0
        for part in parts[:-1]:
            position = page.text.find(part, position)
            assert position >= 0, part


def test_offers_stand_in_the_report_and_on_the_table_and_show_what_became_of_them() -> None:
    (case,) = [generate("test", 0, 7, 2)]
    (episode,) = play([case])
    text = Page(render(case, episode)).text
    decision = PlanGame(case).read_decision(read_reports(case, episode), episode.decision)
    assert decision is not None
    for report in read_reports(case, episode).values():
        assert report is not None
        for offer in report["offers"]:
            said = f"{', '.join(offer['choice'])}, cost {offer['cost']}, worth {offer['worth']}"
            is_funded = offer["option"] == decision["option"] and offer["label"] in decision["fund"]
            assert text.count(f"{said} funded") == (2 if is_funded else 0)  # beside the report, on the table
            assert text.count(said) >= 2


def test_claims_that_were_struck_out_are_shown() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = play([case])
    report = json.loads(episode.reports["risk"][episode.reports["risk"].index("{") :])
    report["offers"][0]["worth"] += 1
    text = Page(render(case, replace(episode, reports={**episode.reports, "risk": json.dumps(report)}))).text
    assert f"struck out offer on {report['offers'][0]['option']}" in text


def test_a_question_and_its_reply_are_shown() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = play([case])
    ask = json.dumps({"ask": {"seat": "cto", "option": "A", "cost_at_most": 15}})
    offer = {"option": "A", "part": ["spare <gateway>"], "cost": 9, "worth": 14}
    asked = (
        Question(ask=ask, reply=json.dumps({"offer": offer})),
        Question(ask=ask, reply='{"offer": null}'),
        Question(ask=ask, reply="no"),
    )
    text = Page(render(case, replace(episode, asked=asked))).text
    assert "ReconcileGPT asks CTO for another offer on A that costs at most 15 k$." in text
    assert "CTO offers spare <gateway>: cost 9, worth 14." in text
    assert "CTO has none." in text
    assert "CTO says nothing valid: no." in text


def test_the_page_runs_and_loads_nothing() -> None:
    (case,) = draw_scenarios(1)
    source = render(case, play([case])[0])
    page = Page(source)
    assert is_safe(page)
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert "url(http" not in source
    assert "@import" not in source
    assert "//" not in source.replace("<!doctype html>", "")
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 640px"):
        assert query in source


def test_on_a_phone_cells_wrap_and_nothing_is_wider_than_the_page() -> None:
    (case,) = draw_scenarios(1)
    source = render(case, play([case])[0])
    phone = source[source.index("@media (max-width: 640px)") : source.index("@media print")]
    assert ".stack th[scope=row], #log th, #log td { white-space: normal; }" in phone
    assert "minmax(0, 1fr)" in phone
    assert ".scroll { overflow-x: auto;" in source


def test_scores_stand_beside_the_truth() -> None:
    cases = draw_scenarios(20)
    for case, episode in zip(cases, play(cases), strict=True):
        verdict = score_episode(case, episode, WEIGHTS)
        text = Page(render(case, episode)).text
        assert text.count("the best plan on it, in truth") == 1
        assert text.count(", the best ") == (0 if case.optimum is None else 1)
        assert f"{verdict.reward:.2f} team reward R" in text
        assert f"R, team reward {verdict.reward:.3f}" in text
        assert "1.00 by its own verifier" in text
        if case.optimum is None:
            assert "No option can be run within the budget." in text
        else:
            assert f"{case.optimum.worth} k$ (V = 1)" in text
            assert f"in the best plan (option {case.optimum.plan.option})" in text
        assert ("(a hidden profile)" in text) == is_hidden_profile(case.case)
        if case.optimum is not None and verdict.value > 0:
            assert f" = {verdict.value:.2f}." in text


def test_the_formula_carries_the_numbers() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = play([case])
    verdict = replace(score_episode(case, episode, WEIGHTS), value=0.8, consensus=0.75, unresolved=0.25)
    shown = Page(render(case, episode, verdict=replace(verdict, reward=0.71))).text
    assert (
        "R = V (1 + c C) / (1 + c) - k U - h H = 0.800 x (1 + 0.25 x 0.750) / 1.25 - 0.2 x 0.250 - 0.1 x 0"
        " = 0.710" in shown
    )


def test_a_written_case_has_its_words_and_no_score() -> None:
    case = hospital()
    (episode,) = play([case])
    source = render_minutes(case, episode, label="expert team", chat=CHAT)
    page = Page(source)
    assert is_safe(page)
    assert page.text.count("How do we read radiology images") >= 2
    assert "Decided: option" in page.text
    for option in case.public.options.values():
        assert option.name in page.text
    for role in case.seats:
        for offer in (read_episode(case, episode).table[role] or EMPTY_REPORT).offers:
            assert ", ".join(offer.choice) in page.text
    assert "Not scored: nobody knows the right answer" in page.text
    assert "- not scored" in page.text
    for word in ("in truth", "team reward", "verifier", "right answer is", "V ="):
        assert word not in page.text
    for notes in case.notes.values():
        assert notes in page.text


def contested_case() -> tuple[TeamScenario, str]:
    """A case with a best plan, and an option on it that some seat cannot run unfunded."""
    for case in draw_scenarios(60):
        for option in case.options:
            if case.optimum is not None and list_hanging(case, option):
                return case, option
    raise AssertionError("no such case")


def list_hanging(case: TeamScenario, option: str) -> list[str]:
    return [role for role in SEATS if is_needed(case, role, option) or is_vetoed(case, role, option)]


def test_every_draft_and_its_votes_are_kept() -> None:
    case, broken = contested_case()
    experts = oracle_team([case], report_habit="measured", funding_habit="exact")
    expert = experts.pop("reconcile")

    def reconcile(transcript: str, rng: random.Random) -> str:
        bare = json.dumps({"option": broken, "fund": [], "escalate": False})
        return expert(transcript, rng) if "Decide again" in transcript else bare

    engine = ScriptedEngine(CHAT, seeded={**experts, "reconcile": reconcile})
    (episode,) = asyncio.run(play_episodes([case], TEAM, engine, CHAT, SAMPLING, rounds=2))
    text = Page(render(case, episode)).text
    assert f"Draft 1. ReconcileGPT decides for option {broken}" in text
    objectors = list_hanging(case, broken)
    assert text.count(" objects right") == len(objectors)
    assert text.count(" accepts right") == 8 - len(objectors)
    assert f"{broken} breaks my limit" in text or "objects" in text
    assert "Draft 2. ReconcileGPT decides for option" in text


def test_options_say_who_favours_them_and_what_stands_in_their_way() -> None:
    cases = [generate("train", 0, index, 8) for index in range(12)]
    num_vetoed = num_lacking = 0
    for case, episode in zip(cases, play(cases), strict=True):
        table = dict(read_episode(case, episode).table)
        silent = next((role for role in SEATS if any(is_needed(case, role, o) for o in case.options)), None)
        if silent is not None and (report := table[silent]) is not None:
            table[silent] = replace(report, offers=())
        rows = list_options(case, table, None, ROLES)
        assert any(row["favoured_by"] for row in rows)
        for row in rows:
            vetoed = any(is_vetoed(case, role, row["letter"]) for role in SEATS)
            lacking = silent is not None and is_needed(case, silent, row["letter"])
            assert ("vetoed by" in row["obstacles"]) == vetoed
            assert ("would need a part" in row["obstacles"]) == lacking
            num_vetoed, num_lacking = num_vetoed + vetoed, num_lacking + lacking
    assert num_lacking


def test_tools_are_shown_with_what_they_said() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = play([case])
    turns = iter(
        [
            format_tool_call("Let me see. ", ToolCall(name="measure", arguments={"option": "B"})),
            "<tool_call>{}</tool_call>",
            episode.reports["cto"],
        ]
    )
    engine = ScriptedEngine(CHAT, {"cto": lambda transcript: next(turns)})
    agent = Agent(
        role=ROLES["cto"],
        policy="cto",
        engine=engine,
        chat=CHAT,
        sampling=SAMPLING,
        session="s",
        call_tool=lambda call: "latency 35 <b>ms</b>",
        prompt_role=PlanGame(case).prompt_role("cto"),
    )
    asyncio.run(agent.answer(PlanGame(case).write_report_brief("cto")))
    played = replace(episode, trajectories={**episode.trajectories, "cto": agent.trajectory()})
    page = Page(render(case, played))
    assert "looks up measure(option=B) latency 35 <b>ms</b>" in page.text
    assert "a call that is none" in page.text
    assert "1 of 2" in page.text
    assert page.tags.count("b") == Page(render(case, episode)).tags.count("b")


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_people_and_models_write_stays_text(attack: str) -> None:
    case = hospital()
    options = {letter: replace(option, name=attack) for letter, option in case.public.options.items()}
    hostile = replace(
        case,
        title=attack,
        context=attack,
        public=replace(case.public, situation=attack, options=options),
        seats={
            role: replace(seat, facts={**seat.facts, "words": attack}) for role, seat in case.seats.items()
        },
    )
    (episode,) = play([case])
    turn = replace(episode.trajectories["cto"].turns[0], policy_version=attack)
    path = replace(episode.trajectories["cto"], turns=(turn,))
    said = replace(
        episode,
        reports=dict.fromkeys(episode.reports, attack),
        decision=attack,
        votes=dict.fromkeys(episode.votes, json.dumps({"vote": "object", "reason": attack[:300]})),
        asked=(Question(ask=attack, reply=attack),),
        trajectories={**episode.trajectories, "cto": path},
        error=attack,
    )
    source = render_minutes(
        hostile,
        said,
        label=attack,
    )
    page = Page(source)
    assert is_safe(page)
    assert source.count("<style>") == source.count("</style>") == 1
    assert "55433" not in page.text
    assert "\x1b" not in source
    assert "\u202e" not in source


def test_what_went_wrong_is_said() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = play([case])
    silent = replace(episode, decision="", votes={}, reports={**episode.reports, "risk": "hm"})
    text = Page(render(case, silent, chat=None)).text
    assert "No valid decision was reached." in text
    assert "not a valid report hm" in text
    failed = replace(silent, trajectories={}, reports={}, error="engine lost")
    text = Page(render(case, failed)).text
    assert "The meeting broke off" in text
    assert "infrastructure fault engine lost" in text
    assert "Nothing was decided." in text
    assert "Not scored: an infrastructure fault is not the team's." in text
    cut = replace(episode.trajectories["coo"], ended_by="turns")
    played = replace(episode, trajectories={**episode.trajectories, "coo": cut})
    assert "cut off by a limit" in Page(render(case, played)).text


def test_an_index_links_every_page_with_its_outcome(tmp_path: Path) -> None:
    cases = draw_scenarios(3)
    played = list(zip(cases, play(cases), strict=True))
    for case, episode in played:
        write_page(tmp_path / minutes_file(episode), render_minutes(case, episode, label="team"))
    shown = [(case, episode, score_episode(case, episode, WEIGHTS)) for case, episode in played]
    attack = replace(hospital(), title="<script>alert(1)</script>")
    (meeting,) = play([attack])
    write_page(tmp_path / minutes_file(meeting), render_minutes(attack, meeting, label="team"))
    page = Page(write_index(tmp_path, [*shown, (attack, meeting, None)], label="<b>team</b>").read_text())
    links = [value for _, name, value in page.attributes if name == "href"]
    assert all((tmp_path / link).is_file() for link in links)
    assert links == [minutes_file(episode) for _, episode in (*played, (attack, meeting))]
    assert "script" not in page.tags
    assert "4 cases" in page.text
    assert page.text.count("Decided: option") + page.text.count("goes to a human") == 4
    assert "not scored" in page.text


def test_the_graph_stands_as_mermaid_text() -> None:
    (case,) = draw_scenarios(1)
    words = "".join(Page(render(case, play([case])[0])).words)
    assert team_graph(tuple(case.seats)).get_graph().draw_mermaid().strip() in words


def test_minutes_need_no_library_of_charts_or_statistics() -> None:
    program = (
        "import sys, evaluation.minutes.minutes\n"
        "sys.exit(str({'matplotlib', 'networkx', 'scipy.stats'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda episode: episode, "team-train-0-0-1.html"),
        (lambda episode: replace(episode, index_in_group=2), "team-train-0-0-1.2.html"),
        (lambda episode: replace(episode, scenario_key="../../etc/x"), "-etc-x.html"),
    ],
)
def test_a_page_has_a_name_of_its_own(
    change: Callable[[Episode], Episode], name: str, tmp_path: Path
) -> None:
    (case,) = draw_scenarios(1)
    episode = change(play([case])[0])
    assert minutes_file(episode) == name
    path = write_page(tmp_path / "new" / minutes_file(episode), render_minutes(case, episode, label="x"))
    assert path.read_text().startswith("<!doctype html>")
    assert [entry.name for entry in path.parent.iterdir()] == [name]
