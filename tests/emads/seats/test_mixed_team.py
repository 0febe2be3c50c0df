"""Teams of any mix play whole episodes: experts behind a real server, scripts and runs at one table."""

from pathlib import Path

import pytest
from table_server import answer_as_experts
from teacher_server import OFTEN, serve
from tiny_models import make_tiny_base, make_untrained_run

import emads
from emads.cli import main
from emads.seats import STOPPED
from emads.seats.players import ApiOptions, read_api_options
from emads.team import Team
from roles.errors import UserError
from scenarios.team import generate
from training.config.loading import load_config
from training.runs.run_folder import Run

CASES = [generate("test", 3, index, 1 + index) for index in range(4)]
EXPERTS = ["all=scripted:measured", "reconcile=scripted:exact"]


def load(seats: list[str], api: ApiOptions | None = None, questions: int | None = None) -> Team:
    return emads.load_team(seats=seats, api=api, questions=questions)


def test_a_model_behind_a_server_plays_as_the_same_model_here() -> None:
    scripted = emads.play(load(EXPERTS), CASES)
    with serve(answer_as_experts(CASES)) as server:
        options = read_api_options(["price.tiny=1,2", "backoff_s=0.01"])
        team = load([f"all=openai:tiny@{server.url}"], options)
        server.faults = ["500", None, "half JSON", None, "429"]
        played = emads.play(team, CASES)
    assert [one.episode.reports for one in played] == [one.episode.reports for one in scripted]
    assert [one.episode.decision for one in played] == [one.episode.decision for one in scripted]
    assert [one.episode.votes for one in played] == [one.episode.votes for one in scripted]
    verdicts = [one.verdict for one in played]
    assert verdicts == [one.verdict for one in scripted]
    calls = [one.episode.trajectories["cto"].num_valid_tool_calls for one in played]
    assert min(calls) > 0
    assert all(body["tools"] for body in server.bodies)
    (total,) = [line for line in team.describe_usage() if line.startswith("all")]
    num_requests = sum(len(path.turns) for one in played for path in one.episode.trajectories.values())
    assert f"{num_requests:,} requests" in total
    assert team.spent is not None
    assert f"cost {team.spent:.4f}" in total
    assert team.spent > num_requests * (100 * 1 + 10 * 2) / 1e6  # what failed may have been charged, too


def test_one_seat_by_a_server_and_the_others_by_scripts() -> None:
    with serve(answer_as_experts(CASES)) as server:
        team = load([*EXPERTS, f"cto=openai:tiny@{server.url}"])
        played = emads.play(team, CASES)
    assert [one.verdict for one in played] == [one.verdict for one in emads.play(load(EXPERTS), CASES)]
    systems = {body["messages"][0]["content"] for body in server.bodies}
    assert all(system.startswith("You are CTO ") for system in systems)
    assert [line.split()[0] for line in team.describe_usage()] == ["cto", "all"]
    assert "cost unknown" in team.describe_usage()[0]
    assert team.spent is None


def test_a_cost_limit_stops_the_play_and_the_kept_replies_go_on(tmp_path: Path) -> None:
    with serve(answer_as_experts(CASES)) as server:

        def play(max_cost: float) -> tuple[int, str | None]:
            options = read_api_options(
                [
                    "price=1000,1000",
                    f"max_cost={max_cost}",
                    "max_completion_tokens=20",
                    f"replies={tmp_path / 'replies.jsonl'}",
                ]
            )
            team = load([*EXPERTS, f"cto=openai:tiny@{server.url}"], options)
            try:
                played = emads.play(team, CASES)
            except emads.FaultyPlayError as fault:
                played = fault.played
            return sum(one.episode.error is None for one in played), team.stop

        whole, stop = play(9.0)
        assert whole < len(CASES)
        assert stop is not None
        assert "cost limit 9 reached" in stop
        paid = len(server.bodies)
        assert paid > 0
        assert play(9.0)[0] == whole
        assert len(server.bodies) == paid
        assert play(1000.0) == (len(CASES), None)
        assert len(server.bodies) - paid < paid + 20  # what was paid for was not asked again


@pytest.mark.parametrize(
    ("planned", "shown_fault"),
    [("down", "connection"), ("silent", "timeout"), ("429 plain", "rate_limit"), ("HTML", "content_type")],
)
def test_a_faulty_endpoint_raises_its_fault_and_keeps_what_was_played(
    planned: str, shown_fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["max_retries=0", "timeout_s=0.4"]
    case = emads.load_team("scripted").draw_case(0)
    with serve(answer_as_experts([case])) as server:
        server.faults = [] if planned == "down" else [planned] * OFTEN
        url = "http://127.0.0.1:9" if planned == "down" else server.url
        team = load([*EXPERTS, f"cto=openai:tiny@{url}"], read_api_options(limits))
        with pytest.raises(emads.FaultyPlayError, match=f"1 of 1 cases broke off .*{shown_fault}") as raised:
            emads.play(team, [case])
        assert raised.value.played[0].verdict is None
        assert "nobody knows the right answer" not in raised.value.played[0].text
        api = [word for limit in limits for word in ("--api", limit)]
        for protocol in ("assess", "full"):
            seat = ["--seat", f"cto=openai:tiny@{url}", "--protocol", protocol]
            jsonl = tmp_path / f"{protocol}.jsonl"
            status = main(["simulate", "--team", "scripted", *seat, *api, "--jsonl", str(jsonl)])
            shown = capsys.readouterr()
            assert status == STOPPED, shown
            assert shown_fault in shown.err.splitlines()[-1]
            assert shown.err.splitlines()[-1].startswith("error: ")
            assert jsonl.is_file()


def test_the_team_of_a_source_keeps_the_seats_that_are_not_named() -> None:
    team = emads.load_team("scripted", seats=["cto=scripted:lean"])
    assert team.label == "team of cto=scripted:lean, others scripted"
    assert team.draw_case(0).key == emads.load_team("scripted").draw_case(0).key
    with pytest.raises(UserError, match="nobody plays 'coo'"):
        emads.load_team(seats=["cto=scripted"])
    with pytest.raises(UserError, match="no run in /nonexistent"):
        emads.load_team(seats=["all=scripted", "cto=run:/nonexistent"])
    with pytest.raises(UserError, match="nobody plays: name a run"):
        emads.load_team()


@pytest.mark.slow
def test_a_run_sits_beside_scripts_and_reads_its_own_prompts(tmp_path: Path) -> None:
    settings = (
        *("num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2"),
        *("model.intermediate_size=64", "data.difficulties=[1]"),
    )
    run = Run.create(tmp_path / "run", load_config(None, settings))
    make_tiny_base(run.path)
    team = load([*EXPERTS, f"cto=run:{run.path}/base"])
    (played,) = emads.play(team, CASES[:1])
    (scripted,) = emads.play(load(EXPERTS), CASES[:1])
    game = team.make_game(CASES[0])
    assert len(game.prompt_role("cto").mandate) < len(game.prompt_role("coo").mandate) / 5
    assert played.episode.trajectories["cto"].turns[0].policy_version == "cto@base"
    assert played.episode.reports["coo"] == scripted.episode.reports["coo"]
    alone = emads.play(emads.load_team(run.path, stage="base"), CASES[:1])
    assert played.episode.reports["cto"] == alone[0].episode.reports["cto"]  # as in its own team


def test_questions_are_those_of_the_call_else_of_the_run_in_the_chair(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", load_config(overrides=["model.questions=2", "model.hidden_size=16"]))
    make_tiny_base(run.path)
    chair = f"reconcile=run:{run.path}/base"

    def most(team: emads.Team) -> int:
        return team.make_game(CASES[0]).most_questions

    assert most(emads.load_team("scripted")) == most(load(["all=scripted"])) == 1
    assert most(emads.load_team("scripted", questions=3)) == most(load(["all=scripted"], questions=3)) == 3
    assert most(load(["all=scripted", chair])) == most(emads.load_team(run.path, stage="base")) == 2
    assert most(load(["all=scripted", chair], questions=0)) == 0
    assert most(emads.load_team(run.path, stage="base", questions=0)) == 0


def test_a_written_case_has_the_offers_per_option_of_the_run(tmp_path: Path) -> None:
    run = make_untrained_run(tmp_path / "run", "data.offers_per_option=2")
    file = Path(__file__).parents[3] / "examples" / "card-payments.yaml"
    for team, most in ((emads.load_team(run, stage="base"), 2), (load(EXPERTS), 1)):
        public = team.read_case(file).public
        assert public.offers_per_option == most == team.draw_case(0).public.offers_per_option
