"""The command line: every mistake is one clear line on standard error, exit status 2, and nothing is lost."""

import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import fail
from python_process import run_python

from emads.cli import main
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.runs.run_folder import Run

ROOT = Path(__file__).parent.parent.parent
DEMO = ROOT / "configs" / "demo.yaml"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("trian sft", ["unknown verb 'trian'", "did you mean 'train'"]),
        ("train grppo r", ["unknown stage 'grppo'", "did you mean 'grpo'"]),
        ("train sft r --labels x.jsonl", ["--labels goes with corrections, dpo", "not with sft"]),
        ("train dpo r --config x.yaml", ["--config goes with base", "not with dpo"]),
        ("train marl r --role cto", ["--role goes with sft, grpo", "not with marl"]),
        ("train tasks r --config {demo}", ["name the TASKS"]),
        ("generate --cuont 3", ["--cuont", "--count"]),
        ("generate --count three", ["--count", "integer"]),
        ("generate --family ctoo", ["unknown family 'ctoo'", "did you mean 'cto'"]),
        ("generate --count -3", ["count -3 must be 1 or more"]),
        ("generate --seed -1", ["seed -1 must be 0 or more"]),
        ("generate --processes 0", ["processes 0 must be 1 or more"]),
        ("generate --split tets", ["unknown split 'tets'", "did you mean 'test'"]),
        ("generate --difficulties 1-x", ["'1-x'", "1,2 or 1-3"]),
        ("generate --difficulties 9-12", ["difficulty 11 must be 1 to 10"]),
        ("generate --difficulties 3-1", ["the range 3-1 is empty; write 1-3"]),
        ("generate --count 3 --family cto --out /dev/full/data", ["cannot write data folder /dev/full/data"]),
        ("validate /nonexistent", ["no data in /nonexistent"]),
        ("validate", ["Missing argument"]),
        ("train sft r --role ctp", ["unknown role 'ctp'", "did you mean 'cto'"]),
        (
            "train base r --config {demo} --set sft.max_stepz=3",
            [
                "'sft.max_stepz'",
                "did you mean 'sft.max_steps' or ",
                "`emads demo --print-config` lists all keys",
            ],
        ),
        (
            "train marl r --config {demo} --set marl.report_sets=1",
            ["marl.report_sets = 1: input should be"],
        ),
        ("train grpo r --config {demo} --set grpo", ["section.key=value"]),
        ("train base r --config /nonexistent.yaml", ["/nonexistent.yaml", "No such file"]),
        (
            "train base /dev/full/run --config {demo}",
            ["cannot write run folder /dev/full/run"],
        ),
        ("train base /nonexistent --resume", ["no run in /nonexistent"]),
        ("train base r --resume --set seed=3", ["leave out --config and --set"]),
        ("simulate r --stage mral", ["unknown stage 'mral'", "did you mean 'marl'"]),
        ("simulate r --count 0", ["--count 0 must be 1 or more"]),
        ("simulate r --index -1", ["--index -1 must be 0 or more"]),
        ("simulate /nonexistent", ["no run in /nonexistent"]),
        ("evaluate . --count 2000000", ["no run in ."]),
        ("demo r --set model.preset=./models/none", ["'./models/none': no such folder", "hub id"]),
        ("demo r --set model.preset=/dev", ["'/dev': no config.json in that folder"]),
        ("simulate --team scripted --html /dev/null", ["--html /dev/null is a file: name a folder"]),
        ("simulate --team scripted --html out.html", ["--html out.html must be a folder: try --html out/"]),
        ("simulate --team scripted --jsonl /dev", ["--jsonl /dev is a folder"]),
        ("simulate --team scripted --html /dev/null/a/b", ["--html /dev/null/a/b: /dev/null is a file"]),
        ("simulate --team scripted --atif /dev/null/a/b", ["--atif /dev/null/a/b: /dev/null is a file"]),
        ("simulate --team scripted --jsonl /dev/null/a/b", ["--jsonl /dev/null/a/b: /dev/null is a file"]),
        ("serve-env --rows /dev --count 1", ["--rows /dev is a folder"]),
        ("labels simulate r --role cto --out /dev", ["--out /dev is a folder"]),
        ("labels show nofile", ["no label file nofile", "`emads labels simulate`"]),
        ("plan --price nan", ["--price nan must be a number of 0 or more"]),
        ("plan --price -1", ["--price -1.0 must be a number of 0 or more"]),
        ("train ppo r --labels x.jsonl", ["--labels goes with corrections, dpo, reward, not with ppo"]),
        (
            "simulate --seat all=openai:x@http://127.0.0.1:1/v1 --api replies=/dev",
            ["cannot write /dev: Is a directory"],
        ),
        ("evaluate /nonexistent", ["no run in /nonexistent"]),
        ("report /nonexistent", ["no run in /nonexistent"]),
        ("simulate", ["`emads simulate examples/card-payments.yaml --team scripted --html out/`"]),
        ("simulate a b", ["two runs, a and b"]),
        ("simulate a --team scripted", ["not both"]),
        ("simulate --team scripted --stage sft", ["--stage goes with a RUN"]),
        ("simulate a --team smollm2", ["not both"]),
        ("simulate --team runs/x", ["unknown team 'runs/x'", "`emads simulate runs/x`"]),
        ("train sft typo", ["no run in typo", "--config FILE", "name the folder of an existing run"]),
        ("train sft typo --set seed=3", ["no run in typo", "--config FILE"]),
        ("train sft", ["Missing argument 'RUN'"]),
        ("train sft --run typo", ["No such option: --run"]),
        ("demo r --set grpo.max_steps=99999999999", ["grpo.max_steps = 99999999999", "equal to 1000000"]),
        ("demo r --set grpo.max_steps=999999", ["grpo.max_steps = 999999", "at most 125,000"]),
        ("plan r --config x.yaml", ["not both"]),
        ("demo --seeds 0", ["--seeds 0 must be 1 or more"]),
        (
            "serve scripted --url team.example",
            ["--url team.example is no address", "https://team.example.com"],
        ),
        ("review r --url ftp://x", ["--url ftp://x is no address"]),
        ("demo --resume --config x.yaml", ["leave out --config and --set"]),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = fail(capsys, *arguments.format(demo=DEMO).split())
    assert [part for part in parts if part not in line] == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_runs_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused by its files' names: no library that takes seconds is imported for it."""
    Run.create(tmp_path / "runs/one", RunConfig())
    for verb in ("simulate", "serve"):
        assert f"name one of them, such as {tmp_path / 'runs/one'}" in fail(capsys, verb, tmp_path / "runs")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("review {store}", ["--db '{store}' cannot be used", "choose another file"]),
        ("review {run} --reviewer ?", ["--reviewer '?'", "is no name"]),
        ("review {run} --remove nobody", ["--remove 'nobody': nobody registered the reviewer"]),
        ("serve scripted --db {store}", ["--db '{store}' cannot be used", "choose another file"]),
    ],
)
def test_a_service_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, parts: list[str]
) -> None:
    run, store = tmp_path / "run", tmp_path / "text"
    Run.create(run, RunConfig())
    store.write_text("no store")
    port = [] if "--remove" in arguments else ["--port", "0"]
    line = fail(capsys, *arguments.format(run=run, store=store).split(), *port)
    assert [part for part in parts if part.format(store=store) not in line] == []


def test_two_reviewers_do_not_share_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has it would be two pairs of eyes."""
    monkeypatch.setenv("TOKEN_A", "t" * 40)
    monkeypatch.setenv("TOKEN_B", "t" * 40)
    call = ("serve", "scripted", "--db", tmp_path / "s.db", "--reviewer")
    assert "give each their own" in fail(capsys, *call, "ann=TOKEN_A", "--reviewer", "bob=TOKEN_B")
    assert list(tmp_path.iterdir()) == []


def test_imports_are_not_looked_through_for_garbage(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold()
    try:
        for found, wanted in ((700, 10_000), (20_000, 20_000), (0, 0)):
            gc.set_threshold(found, 10, 10)
            main(["--version"])
            assert gc.get_threshold() == (wanted, 10, 10)
    finally:
        gc.set_threshold(*before)


def test_malformed_yaml_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("name: x\nsft:\n  max_steps: [3\n")
    line = fail(capsys, "demo", tmp_path / "run", "--config", tmp_path / "c.yaml")
    assert f"{tmp_path / 'c.yaml'}:4: malformed YAML" in line
    assert not (tmp_path / "run").exists()


def test_another_config_leaves_the_run_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create(tmp_path / "run", RunConfig())
    run.log("sft", 1, {"loss": 0.5})
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    line = fail(capsys, "train", "base", run.path, "--set", "seed=4")
    assert "seed is 0 there, 4 here" in line
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_damaged_stored_config_names_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.create(tmp_path / "run", RunConfig())
    (run.path / "config.yaml").write_text("name: x\nsft: [\n")
    assert f"{run.path / 'config.yaml'}:3:" in fail(capsys, "evaluate", run.path)


def test_a_truncated_data_file_is_named_and_the_clean_rows_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.data.folders.datasets.SCENARIOS_PER_SHARD", 5)
    assert main(["generate", "--family", "cto", "--count", "10", "--out", str(tmp_path)]) == 0
    path = tmp_path / "cto" / "train-00001.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    capsys.readouterr()
    status = main(["validate", str(tmp_path)])
    captured = capsys.readouterr()
    assert status == 2
    assert "cto/train-00001.parquet: truncated or corrupt Parquet file" in captured.err
    assert "5 of 5 rows are clean" in captured.out


def test_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    line = fail(capsys, "generate", "--family", "cto", "--count", "3", "--out", tmp_path / "data")
    assert "No space left on device" in line


def test_generate_and_validate_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--count", "3", "--difficulties", "1-2", "--out", str(tmp_path / "data")]
    assert main(arguments) == 0
    assert "30 rows in 6 shards" in capsys.readouterr().out  # 5 families x 3, and 3 team cases of 5 seats
    assert main(["validate", str(tmp_path / "data")]) == 0
    assert "30 of 30 rows are clean" in capsys.readouterr().out


def test_print_config_shows_the_resolved_config_and_does_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--config", str(DEMO), "--set", "sft.max_steps=3"]
    status = main(["demo", str(tmp_path / "run"), *settings, "--print-config"])
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert status == 0
    assert load_config(tmp_path / "printed.yaml") == load_config(DEMO, ["sft.max_steps=3"])
    assert not (tmp_path / "run").exists()


def test_an_existing_run_brings_its_own_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.create(tmp_path / "run", load_config(None, ["sft.max_steps=3"]))
    for resume in ([], ["--resume"]):
        assert main(["demo", str(tmp_path / "run"), "--print-config", *resume]) == 0
        assert "max_steps: 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["demo", "runs/x", "--config", str(DEMO)], "finished stages and the newest checkpoints are kept"),
        (["evaluate", "runs/x"], "finished plays are kept"),
    ],
)
def test_ctrl_c_says_what_is_kept_and_the_command_that_goes_on(
    arguments: list[str],
    kept: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Run, "create", interrupt)
    monkeypatch.setattr("emads.cli.evaluate.refuse_missing_run", interrupt)
    assert main(arguments) == 130
    line = capsys.readouterr().err
    assert line == f"error: interrupted; {kept}, the same command goes on: emads {' '.join(arguments)}\n"


def test_without_a_verb_the_verbs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_help_starts_without_the_heavy_libraries() -> None:
    program = (
        "import sys\nfrom emads.cli import main\nmain(['--help'])\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'pydantic', 'yaml', 'networkx', 'langgraph'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "generate" in done.stdout
    assert time.monotonic() - start < 10  # 0.1 s on an idle machine


def test_generate_for_trl_writes_chats_that_load(tmp_path: Path) -> None:
    from datasets import load_dataset
    from trl import is_conversational

    assert (
        main(["generate", "--trl", "--family", "cost", "--count", "8", "--out", str(tmp_path / "trl")]) == 0
    )
    for name in ("sft", "grpo"):
        rows = load_dataset(str(tmp_path / "trl" / name), cache_dir=str(tmp_path / "cache"))
        assert len(rows["train"]) == 8
        assert is_conversational(rows["train"][0])


@pytest.mark.parametrize("options", [[], ["--family", "all"], ["--family", "cto", "--split", "test"]])
def test_trl_folders_are_of_one_role_and_of_open_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main(["generate", "--trl", "--out", str(tmp_path / "trl"), *options]) == 2
    assert capsys.readouterr().err.startswith("error: --trl writes ")
    assert not (tmp_path / "trl").exists()


REFUSED = (
    "simulate runs/nope",
    "simulate --team scripted --html /dev/null",
    "evaluate runs/nope",
    "evaluate {run} --count 2000000",
    "evaluate {run} --stage sft",
    "evaluate {run} --role cto",
    "evaluate {run} --suite reasoning-jym",
    "report runs/nope",
    "play runs/nope",
    "play {run} --role ctp",
    "diagnose runs/nope",
    "train sft runs/nope",
    "train base runs/x --config {demo} --set sft.max_stepz=3",
    "train base runs/x --config {demo} --set model.preset=./none",
    "train dpo runs/nope",
    "demo runs/x --set model.preset=./none",
    "run --config {demo} --set model.preset=./none",
    "serve runs/nope",
    "export runs/nope --to out",
    "verify nope",
    "validate nope",
    "plan runs/nope",
)


def test_refusals_load_no_heavy_library(tmp_path: Path) -> None:
    folder = Run.create(tmp_path / "made", load_config(DEMO)).path
    calls = [call.format(demo=DEMO, run=folder).split() for call in REFUSED]
    program = (
        "import json, sys\nfrom emads.cli import main\n"
        "for call in json.loads(sys.argv[1]):\n"
        "    assert main(call) == 2, call\n"
        "    heavy = {'torch', 'transformers', 'scipy.stats', 'langgraph', 'datasets'} & set(sys.modules)\n"
        "    assert not heavy, (call, heavy)\n"
    )
    done = run_python("-c", program, json.dumps(calls), folder=tmp_path, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "runs").exists()
