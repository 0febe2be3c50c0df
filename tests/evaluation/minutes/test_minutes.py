"""Minutes: one page that says who read, looked up, wrote and voted what, with nothing in it that runs."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from html_pages import ATTACKS, Page
from team_tables import CHAT, SAMPLING, SEATS, TEAM, oracle_engine

from evaluation.minutes.episode_in_words import VOTE_ENDING, list_options
from evaluation.minutes.graph_picture import draw_graph, find_layers
from evaluation.minutes.minutes import render_minutes, write_minutes
from evaluation.minutes.page_files import make_index_row, minutes_file, write_index
from roles.registry import ROLES
from roles.team import Decision
from scenarios.base import ToolCall
from scenarios.team import TeamScenario, generate, parse_report, vote_brief
from scenarios.team.case import own_vetoes
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent import Agent
from simulator.agents.scripted_policies import oracle_team
from simulator.agents.tool_calls import format_tool_call
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.graph.team_graph import graph_edges, graph_mermaid
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

ROOT = Path(__file__).parent.parent.parent.parent
WEIGHTS = TeamRewardWeights()
ALLOWED_TAGS = re.compile(
    "html|head|meta|title|style|body|main|header|h1|h2|h3|p|b|span|code|pre|ul|li|div|section|article|figure"
    "|table|thead|tbody|tr|th|td|details|summary|footer|svg|defs|marker|path|g|rect|text"
)


def draw_scenarios(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def play(cases: list[TeamScenario] | list[FreeCase], rounds: int = 1) -> list[Episode]:
    engine = oracle_engine(cases, report_practice="stakes", decision_practice="priority")
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
        parts = ["Minutes of the expert team", case.key, "The case", "Reports"]
        for role in SEATS:
            parts += [f"{ROLES[role].title} reads", case.seats[role].brief, "reports", "Recommends"]
        parts += ["Conflicts", "Decision and votes", "ReconcileGPT", "CTO accepts right"]
        parts += ["What ReconcileGPT read and wrote", "Options A B"]
        parts += ["Scores", "V, value", "R, team reward", "How the case ran", "footer"]
        position = 0
        for part in parts[:-1]:
            position = page.text.find(part, position)
            assert position >= 0, part


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


def test_scores_stand_beside_the_truth() -> None:
    cases = draw_scenarios(20)
    for case, episode in zip(cases, play(cases), strict=True):
        verdict = score_episode(case, episode, WEIGHTS)
        text = Page(render(case, episode)).text
        assert text.count("what it was really worth") == 1
        assert text.count(", the best") == (0 if case.truth["no_feasible"] else 1)
        assert text.count("forbidden by") == sum(bool(vetoes) for vetoes in case.truth["vetoes"].values())
        assert f"{verdict.reward:.2f} team reward R" in text
        assert f"R, team reward {verdict.reward:.3f}" in text
        assert "1.00 by its own verifier" in text


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
    assert "Decided: B. A reading room at the main site" in page.text
    assert "Risk wants A; COO rules it out." in page.text
    assert "CTO and COO want B." in page.text
    assert "Not scored: nobody knows the right answer" in page.text
    assert "- not scored" in page.text
    for word in ("really worth", "team reward", "verifier", "right answer is", "V ="):
        assert word not in page.text
    for notes in case.notes.values():
        assert notes in page.text


def test_words_that_a_team_did_not_read_are_marked() -> None:
    case = read_case(ROOT / "examples" / "hospital-imaging.yaml", figures_only=True)
    text = Page(render_minutes(case, play([case])[0], label="tiny team", chat=CHAT)).text
    assert text.count("not read by this team") == 4
    assert case.notes["risk"] in text


def stubborn(case: TeamScenario) -> tuple[ScriptedEngine, str]:
    """A reconciler that first decides for what somebody rules out; the rest are experts."""
    ruled_out = next(option for option in case.options if case.truth["vetoes"][option])

    def reconcile(transcript: str) -> str:
        chosen = case.truth["best"] if "Decide again" in transcript else ruled_out
        return json.dumps({"option": chosen, "escalate": False})

    experts = oracle_team([case], report_practice="stakes")
    experts.pop("reconcile")
    return ScriptedEngine(CHAT, {"reconcile": reconcile}, seeded=experts), ruled_out


def contested_case() -> TeamScenario:
    return next(
        case
        for case in draw_scenarios(60)
        if case.truth["best"] and 0 < sum(map(bool, case.truth["vetoes"].values())) < len(case.options)
    )


def test_every_draft_and_its_votes_are_kept() -> None:
    case = contested_case()
    engine, ruled_out = stubborn(case)
    (episode,) = asyncio.run(play_episodes([case], TEAM, engine, CHAT, SAMPLING, rounds=2))
    text = Page(render(case, episode)).text
    assert f"Draft 1. ReconcileGPT decides for option {ruled_out}" in text
    assert f"read and wrote Options {' '.join(case.options)}" in text
    objectors = [role for role, seat in case.seats.items() if ruled_out in own_vetoes(seat)]
    assert f"read and wrote Objections {' '.join(objectors)}. Decide again." in text
    assert text.count(" objects right") == len(objectors)
    assert text.count(" accepts right") == 8 - len(objectors)
    assert "ReconcileGPT x2" in text
    assert "vote x2" in text


def test_options_say_who_wants_them_and_who_rules_them_out() -> None:
    cases = draw_scenarios(30)
    num_unwanted = num_unanimous = 0
    for case, episode in zip(cases, play(cases), strict=True):
        reports = {role: parse_report(case, text) for role, text in episode.reports.items()}
        heard = {role: report for role, report in reports.items() if report is not None}
        picks = {report.pick for report in heard.values()}
        vetoes = {option for report in heard.values() for option in report.veto}
        num_unwanted += bool(vetoes - picks)
        num_unanimous += len(picks) == 1
        for row in list_options(case, reports, None, ROLES):
            assert bool(row.wanted_by) == (row.letter in picks)
            assert bool(row.ruled_out_by) == (row.letter in vetoes)
    assert num_unwanted
    assert num_unanimous


def test_questions_for_a_vote_are_known_by_their_ending() -> None:
    decisions = [None, Decision(option="B", escalate=False), Decision(option="none", escalate=True)]
    assert all(vote_brief(decision).endswith(VOTE_ENDING) for decision in decisions)


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
    )
    asyncio.run(agent.answer(case.seats["cto"].brief))
    played = replace(episode, trajectories={**episode.trajectories, "cto": agent.trajectory()})
    page = Page(render(case, played))
    assert "looks up measure(option=B) latency 35 <b>ms</b>" in page.text
    assert "a call that is none" in page.text
    assert "1 of 2" in page.text
    assert page.tags.count("b") == Page(render(case, episode)).tags.count("b")


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_people_and_models_write_stays_text(attack: str) -> None:
    case = hospital()
    hostile = replace(
        case,
        title=attack,
        context=attack,
        meanings={**case.meanings, "A": attack},
        notes=dict.fromkeys(case.notes, attack),
    )
    (episode,) = play([case])
    turn = replace(episode.trajectories["cto"].turns[0], policy_version=attack)
    path = replace(episode.trajectories["cto"], turns=(turn,))
    said = replace(
        episode,
        reports=dict.fromkeys(episode.reports, attack),
        decision=attack,
        votes=dict.fromkeys(episode.votes, attack),
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
    rows = []
    for case, episode in zip(cases, play(cases), strict=True):
        write_minutes(tmp_path / minutes_file(episode), case, episode, label="team")
        rows.append(make_index_row(case, episode, score_episode(case, episode, WEIGHTS)))
    attack = replace(rows[0], title="<script>alert(1)</script>", reward="")
    page = Page(write_index(tmp_path, [*rows, attack], label="<b>team</b>").read_text())
    links = [value for _, name, value in page.attributes if name == "href"]
    assert all((tmp_path / link).is_file() for link in links)
    assert links == [row.file for row in (*rows, rows[0])]
    assert "script" not in page.tags
    assert "4 cases" in page.text
    for row in rows:
        assert row.outcome in page.text
    assert "not scored" in page.text


def test_the_picture_is_the_graph() -> None:
    (case,) = draw_scenarios(1)
    source = render(case, play([case])[0])
    edges = graph_edges(tuple(case.seats))
    assert source.count('<g class="edge') == len(edges)
    assert source.count('<g class="node ') == len({node for edge in edges for node in edge[:2]})
    assert source.count('<g class="edge chosen') == sum(conditional for _, _, conditional in edges)
    assert graph_mermaid(tuple(case.seats)).strip() in "".join(Page(source).words)
    row = re.findall(r"<text[^>]*>([^<]+)</text>", source)
    assert row == ["start", "intake", "CTO", "COO", "Risk", "Cost", "ReconcileGPT", "vote", "end"]
    assert not re.search(r"#00000\d|<metadata|DOCTYPE", source)  # colours are the page's, no date or program


@pytest.mark.parametrize(
    ("edges", "layers"),
    [
        ("ab bc", ["a", "b", "c"]),
        ("ab ac bd cd ad", ["a", "bc", "d"]),
        ("ab bc cb cd", ["a", "b", "c", "d"]),
        ("ab bc ca", ["a", "b", "c"]),
        ("aa ab", ["a", "b"]),
        ("bc ab", ["a", "b", "c"]),
    ],
)
def test_layers_follow_the_longest_way(edges: str, layers: list[str]) -> None:
    assert find_layers([(edge[0], edge[1], False) for edge in edges.split()]) == [list(one) for one in layers]


def test_a_node_that_did_not_run_is_faint_and_labels_are_escaped() -> None:
    picture = str(draw_graph([("a", "b", False)], title="<t>", labels={"a": "<b>"}, visits={"b": 0}))
    assert "&lt;b&gt;" in picture
    assert "&lt;t&gt;" in picture
    assert picture.count('<g class="node idle') == 1
    assert picture == str(draw_graph([("a", "b", False)], title="<t>", labels={"a": "<b>"}, visits={"b": 0}))


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
    path = write_minutes(tmp_path / "new" / minutes_file(episode), case, episode, label="x")
    assert path.read_text().startswith("<!doctype html>")
    assert [entry.name for entry in path.parent.iterdir()] == [name]
