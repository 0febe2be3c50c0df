"""`emads run`: all stages, stopped in the middle, what is done is skipped, cases that people label."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from planned_faults import parse_faults, plan_faults
from shared_folders import make_once

from emads.cli import main
from emads.commands.review import measure_doubt
from roles.errors import UserError
from scenarios.team import PlanGame, TeamScenario
from simulator.records import Episode
from training.config.run_config import FIRST_REVIEW_INDEX, DataConfig
from training.data.demonstrations import team_scenario
from training.feedback.labels import QUEUE_FILE, read_queue
from training.feedback.rows import encode_answer
from training.models.weights import load_team
from training.runs.run_errors import OUT_OF_MEMORY
from training.runs.run_folder import Run
from training.stages.from_config import make_chat

SCHEDULE = Path(__file__).parent.parent.parent / "configs" / "schedules" / "tiny.yaml"
SMALL = (
    "num_workers=0", "model.hidden_size=16", "model.num_layers=1",
    "model.num_heads=1", "model.intermediate_size=16", "sft.max_steps=2", "sft.batch_size=2",
    "grpo.max_steps=2", "grpo.prompts_per_step=1", "grpo.group_size=2", "grpo.max_turns=1",
    "grpo.max_completion_tokens=6", "marl.max_steps=1", "marl.scenarios_per_step=1", "marl.report_sets=2",
    "marl.max_completion_tokens=4", "marl.guards.validation_scenarios=2", "review.num_scenarios=5",
)  # fmt: skip


def call(*arguments: object) -> tuple[int, str, str]:
    """Exit status and both outputs of one verb."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, str, str]]]:
    """A schedule that runs out of memory in the second phase, is resumed, and called once more."""
    folder = make_once(tmp_path_factory, "schedule", make_run)
    said = [(status, out, err) for status, out, err in json.loads((folder / "said.json").read_text())]
    return folder / "run", said


def make_run(folder: Path) -> None:
    run, settings = folder / "run", [part for setting in SMALL for part in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.stages.sft.TOKENIZER_SCENARIOS", 10)
        patch.setattr("emads.commands.review.MOST_CASES", 3)
        plan_faults(parse_faults(["oom@grpo/risk:step:1"]))
        said = [call("run", run, "--config", SCHEDULE, *settings)]
        plan_faults([])
        said += [call("run", run, "--resume") for _ in range(2)]
    (folder / "said.json").write_text(json.dumps(said))


@pytest.mark.slow
def test_an_interrupted_schedule_says_what_to_do(made: tuple[Path, list[tuple[int, str, str]]]) -> None:
    status, out, err = made[1][0]
    assert status == OUT_OF_MEMORY
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "out of memory in grpo/risk" in line
    assert "--resume" in line


@pytest.mark.slow
def test_resumed_it_skips_what_is_done(made: tuple[Path, list[tuple[int, str, str]]]) -> None:
    status, out, _ = made[1][1]
    assert status == 0
    stages, queue = out.splitlines()
    assert re.fullmatch(r"13 stages are done, [78] of them before this call; so far .* min", stages)
    assert "uncertain cases wait for people" in queue
    assert "13 stages are done, 13 of them before this call" in made[1][2][1]


@pytest.mark.slow
def test_the_time_of_all_attempts_adds_up(made: tuple[Path, list[tuple[int, str, str]]]) -> None:
    run = Run.open(made[0])
    seconds = run.read_payload("wall")["wall_s"]
    trained_s = sum(run.read_payload(f"{stage}/{role}")["train_s"] for stage in ("sft", "grpo") for role in
                    ("cto", "coo", "risk", "cost", "reconcile"))  # fmt: skip
    assert seconds > trained_s > 0
    assert f"so far {seconds / 60:.1f} min" in made[1][2][1]


@pytest.mark.slow
def test_the_queue_holds_what_the_team_saw_and_no_truth(
    made: tuple[Path, list[tuple[int, str, str]]],
) -> None:
    items = read_queue(made[0] / QUEUE_FILE)
    assert len(items) == Run.open(made[0]).read_payload("review")["num_cases"] == 3
    run = Run.open(made[0])
    config, chat = run.config, make_chat(load_team(run, "marl")[1], run.config)
    first = FIRST_REVIEW_INDEX
    keys = {
        scenario.key: scenario
        for scenario in (
            team_scenario(config.data, "train", first + number)
            for number in range(config.review.num_scenarios)
        )
    }
    for item in items:
        scenario = keys[item.case]
        game = PlanGame(scenario)
        assert item.briefs == {role: game.write_report_brief(role) for role in scenario.seats}
        own = item.answers[0][-1]
        assert own.role == "assistant"
        assert own.token_ids
        assert [message.role for message in item.prompt][:2] == ["system", "user"]
        assert len(item.answers) == 1 or item.answers[1][-1].content != own.content
        assert "optimum" not in item.model_dump_json()
        assert item.correct("{}", "ann").answer[-1].token_ids == own.token_ids
        label = item.judge(True, "ann")
        row = encode_answer(label, label.answer, chat, written_only=False)
        assert row.token_ids[-len(own.token_ids) :] == own.token_ids


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "give RUN, an existing run, or --config FILE"),
        (("run", "runs/none", "--resume"), "no run in runs/none"),
        (("run", "x", "--resume", "--set", "name=y"), "leave out --config and --set"),
        (("run", "x", "--config", "x.yaml", "--resume"), "leave out --config and --set"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[object, ...], message: str) -> None:
    status, _, err = call(*arguments)
    assert status == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


CASE = team_scenario(DataConfig(), "train", 0, (1,))


def episode(decision: str, votes: dict[str, str] | None = None, case: TeamScenario = CASE) -> Episode:
    return Episode(
        scenario_key=case.key, index_in_group=0, trajectories={}, reports={"cto": "r"}, decision=decision,
        votes=votes or {},
    )  # fmt: skip


def decide(option: str) -> str:
    return json.dumps({"option": option, "fund": [], "escalate": option == "none"})


def test_reasons_by_hand() -> None:
    first, second = CASE.options[:2]
    sure = [episode(decide(first))] * 4
    torn = [episode(decide(first))] * 2 + [episode(decide(second)), episode("nonsense")]
    accept, objection = {"cto": '{"vote": "accept"}'}, {"cto": '{"vote": "object"}'}
    assert measure_doubt(CASE, episode(decide(first), accept), sure).reasons == ()
    doubtful = measure_doubt(CASE, episode(decide(first)), torn)
    assert doubtful.reasons == ("low margin",)
    assert doubtful.margin == 0.25  # 2 of 4 against 1 of 4
    assert doubtful.decisions == {first: 2, second: 1, "none valid": 1}
    assert measure_doubt(CASE, episode(decide("none")), sure).reasons == ("escalated",)
    assert measure_doubt(CASE, episode("nonsense"), sure).reasons == ("no valid decision",)
    assert measure_doubt(CASE, episode(decide(first), objection), sure).reasons == ("objection",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "case: Field required"),
        ("nonsense", "line: Invalid JSON"),
        ('{"case": 7}', "case: Input should be a valid string"),
    ],
)
def test_a_damaged_queue_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "queue.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"queue\.jsonl:1 is no item") as error:
        read_queue(tmp_path / "queue.jsonl")
    assert message in str(error.value)
