"""Rescoring: hand-computed rewards under other weights, and what cannot be scored is left out and counted."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import fail

from emads.cli import main
from evaluation.scoring.baselines import book_episode
from evaluation.scoring.rescore import (
    Rescored,
    count_new_winners,
    parse_weights,
    rescore,
    summarise_rescoring,
)
from evaluation.scoring.team_players import play_plan
from roles.errors import UserError
from roles.team import Decision
from scenarios.keys import regenerate
from scenarios.team import TeamScenario, generate
from scenarios.team.offers import is_needed, is_vetoed
from simulator.export.episode_files import write_episodes
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

DEFAULTS = TeamRewardWeights()
SEATS = ("cto", "coo", "risk", "cost")


def played(case: TeamScenario, decision: Decision, num_right: int, *, index: int = 0) -> Episode:
    """The optimum's offers, a decision on them, the first `num_right` votes right, the rest missing."""
    assert case.optimum is not None
    play = play_plan(case, case.optimum.plan)
    reports = {seat: report.model_dump_json() for seat, report in play.reports.items()}
    episode = book_episode(case, reports, decision.model_dump_json())
    votes = {seat: episode.votes[seat] for seat in SEATS[:num_right]}
    return replace(episode, votes=votes, index_in_group=index)


def best(case: TeamScenario) -> Decision:
    assert case.optimum is not None
    return play_plan(case, case.optimum.plan).decision


def bare(option: str) -> Decision:
    return Decision(option=option, fund=[], escalate=False)


def open_case() -> TeamScenario:
    return next(
        case for case in (generate("test", 0, index, 1) for index in range(50)) if case.optimum is not None
    )


def limited_case() -> tuple[TeamScenario, str]:
    """A case with an option that hangs on exactly one seat's limit, and a best plan."""
    for index in range(200):
        case = generate("test", 0, index, 1)
        for option in case.options:
            hanging = [s for s in SEATS if is_needed(case, s, option) or is_vetoed(case, s, option)]
            if case.optimum is not None and len(hanging) == 1:
                return case, option
    raise AssertionError("no such case")


def test_rewards_are_those_of_the_hand() -> None:
    case, (broken, option) = open_case(), limited_case()
    episodes = [played(case, best(case), 2), played(broken, bare(option), 4)]
    after = TeamRewardWeights(consensus=0.5, unresolved=0.4, escalation=1.0)
    rescoring = rescore(episodes, DEFAULTS, after)
    first, second = rescoring.rows
    # V 1, C 2/4, U 0, H 0: 1.125 / 1.25 = 0.9 and 1.25 / 1.5 = 0.8333
    assert first.verdict.reward == pytest.approx(0.9)
    assert first.after == pytest.approx(1.25 / 1.5)
    # V 0, U 1/4: -0.2 / 4 and -0.4 / 4
    assert second.verdict.reward == pytest.approx(-0.05)
    assert second.after == pytest.approx(-0.1)


def test_the_same_weights_change_nothing_and_zero_weights_leave_the_value() -> None:
    cases = [generate("test", 0, index, 1 + index % 2) for index in range(20)]
    runnable = [case for case in cases if case.optimum is not None]
    episodes = [played(case, bare(case.options[n % 2]), n % 5) for n, case in enumerate(runnable)]
    same = rescore(episodes, DEFAULTS, DEFAULTS)
    assert all(row.after == row.verdict.reward for row in same.rows)
    zero = rescore(episodes, DEFAULTS, TeamRewardWeights(consensus=0.0, unresolved=0.0, escalation=0.0))
    assert all(row.after == row.verdict.value for row in zero.rows)


def test_what_has_no_reward_is_counted() -> None:
    case = open_case()
    good = played(case, best(case), 4)
    rescoring = rescore(
        [replace(good, error="gpu lost"), good, replace(good, scenario_key="case/x/00ff")], DEFAULTS, DEFAULTS
    )
    assert (len(rescoring.rows), rescoring.num_faults, rescoring.num_written) == (1, 1, 1)
    assert summarise_rescoring(rescoring) == [
        "left out, infrastructure fault: 1",
        "left out, written by people (no truth is known): 1",
    ]


def test_winners_are_compared_within_a_group() -> None:
    def row(key: str, before: float, after: float) -> Rescored:
        verdict = TeamVerdict(reward=before, value=0, consensus=0, unresolved=0, escalation=0, explanation="")
        return Rescored(key=key, index_in_group=0, verdict=verdict, after=after)

    rows = [row("a", 1, 0), row("a", 0, 1), row("b", 1, 2), row("b", 0, 1), row("c", 1, 0)]
    assert count_new_winners(rows) == (1, 2)


@pytest.mark.parametrize("key", ["team/test/0/7/2", "team/train/3/12/10"])
def test_a_scenario_comes_back_from_its_key(key: str) -> None:
    assert regenerate(key).key == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "cto/test/0/7/2",
        "team/test/0/7",
        "team/tset/0/7/2",
        "team/test/0/-7/2",
        "team/test/0/7/11",
        "team/test/0/7/2/",
        "team/test/0/x/2",
        "team/test/0/\u0667/2",
        "team/test/0/" + "9" * 5000 + "/2",
    ],
)
def test_a_key_that_names_no_scenario_is_refused(key: str) -> None:
    with pytest.raises(UserError) as caught:
        regenerate(key)
    assert len(str(caught.value)) < 250


def test_seats_from_outside_are_refused() -> None:
    case = open_case()
    episode = played(case, best(case), 4)
    with pytest.raises(UserError, match="played with legal at the table"):
        rescore([replace(episode, reports={**episode.reports, "legal": "{}"})], DEFAULTS, DEFAULTS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("consensus", "name=number"),
        ("consenus=1", "did you mean 'consensus'"),
        ("consensus=much", "'much' is no number"),
        ("unresolved=-1", "0 or more"),
        ("escalation=nan", "0 or more"),
        ("escalation=inf", "0 or more"),
    ],
)
def test_wrong_weights_are_named(given: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_weights([given])


def test_the_verb_prints_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = open_case()
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, [played(case, best(case), 2, index=index) for index in range(25)])
    before = path.read_bytes()
    assert main(["rescore", str(path), "--weights", "consensus=0.5", "--weights", "unresolved=0.4"]) == 0
    out = capsys.readouterr().out
    assert "before: consensus 0.25 unresolved 0.2 escalation 0.1\n" in out
    assert "after:  consensus 0.5 unresolved 0.4 escalation 0.1\n" in out
    assert f"{case.key} #0" in out
    assert "0.900" in out
    assert "0.833" in out
    assert "-0.067" in out
    assert "mean of 25" in out
    assert "5 more episodes not shown" in out
    assert "changed in 0 of 1 groups" in out
    assert path.read_bytes() == before


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no episodes file" in fail(capsys, "rescore", tmp_path / "none.jsonl")
    path = tmp_path / "episodes.jsonl"
    path.write_text("{}\n")
    assert "row 1" in fail(capsys, "rescore", path)
    assert "did you mean 'consensus'" in fail(capsys, "rescore", path, "--weights", "consenus=1")
    write_episodes(path, [])
    assert f"{path} holds no episode that can be scored" in fail(capsys, "rescore", path)
