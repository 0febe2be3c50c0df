"""The pages' shell commands run in the order of the site, on a small run: statuses, and outputs where shown.

Configurations are shrunk at the paths that the pages name, counts are cut to 20. A command that is not run
here matches a reason of SKIPPED.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doc_pages import FENCE, README, ROOT

from emads.cli import main

SMALL = {
    "num_workers": 0,
    "num_ranks": 1,
    "model": {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 64},
    "sft": {"max_steps": 10, "batch_size": 4},
    "grpo": {
        "max_steps": 1,
        "prompts_per_step": 2,
        "group_size": 2,
        "max_turns": 2,
        "max_completion_tokens": 24,
    },
    "marl": {
        "max_steps": 1,
        "scenarios_per_step": 2,
        "report_sets": 2,
        "max_completion_tokens": 24,
        "guards": {"validation_scenarios": 2},
    },
    "evaluation": {
        "num_role_scenarios": 4,
        "num_team_scenarios": 4,
        "num_tries": 2,
    },
}
CONFIGS = ("quick.yaml", "schedules/tiny.yaml")
MOST = 20  # of --count
SKIPPED = {  # pattern: why a command is not run here
    r"^(make|source|pre-commit|ruff|mypy|pytest|export|inspect|vf-|trl) ?": "CI, or other environments",
    r"^(python -m|torchrun|accelerate)": "a measurement, or several processes",
    r"openai:|--teacher |runs/taught": "an endpoint: tests/emads/seats, tests/training/data/teacher",
    r"emads (serve|review|serve-env)|--reviewer web|=human": "waits for callers or people: tests/serving",
    r"legal": "tests/end_to_end/test_new_role.py follows the page in a copy of the repository",
    r"smollm2|qwen\.yaml": "a pretrained model: CI's section smollm2",
    r"emads audit": "tests/evaluation/audit",
    r"emads demo runs/full": "minutes: tests/training/stages/test_governed_evaluation.py",
    r"emads demo runs/(ladder|two)": "a measurement of half an hour: tests/end_to_end/test_pipeline.py",
    r"marl.start_from": "tests/training/stages/test_joint_sittings.py",
    r"reasoning-gym": "an extra package: make interop",
    r"runs/gaia|questions.jsonl|gsm8k|vendor.py": "files of the reader: tests/training/data, tests/scenarios",
    r"runs/idle": "60,000 rows: minutes",
    r"emads labels|--labels|emads train ppo": "a trained role: tests/training/stages/test_feedback_stages.py",
    r"emads train tasks": "tests/training/stages/test_tasks.py",
}


def list_pages() -> list[Path]:
    """List README and the pages in the order of the site."""
    nav = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [ROOT / "docs" / name for name in nav if not name.startswith(("reference/", "results/"))]
    return [page for page in (README, *pages) if list(read_calls(page))]


def read_calls(page: Path) -> Iterator[tuple[str, str | None]]:
    """Yield every command of a page and the output that stands after its block, for its last one."""
    blocks = list(FENCE.finditer(page.read_text()))
    for place, block in enumerate(blocks):
        if block[2] != "bash" or block[1]:
            continue
        lines = [line.strip() for line in block[3].replace("\\\n", " ").splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        after = blocks[place + 1] if place + 1 < len(blocks) else None
        is_next = after is not None and after[2] == "text" and after.start() - block.end() <= 2
        for line in lines:
            yield line, after[3] if after is not None and is_next and line is lines[-1] else None


def find_reason(line: str) -> str | None:
    return next((reason for pattern, reason in SKIPPED.items() if re.search(pattern, line)), None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The reader's folder, with the small run in place of the demo's."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "examples").symlink_to(ROOT / "examples")
    for source in (ROOT / "configs").rglob("*.yaml"):
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    for name in CONFIGS:
        review = {"num_scenarios": 2}
        values = {**SMALL, "name": Path(name).stem, "review": review}
        (folder / "configs" / name).write_text(yaml.safe_dump(values))
    plan = yaml.safe_load((ROOT / "configs/ablations/small/kl.yaml").read_text())
    base = {key: SMALL[key] for key in ("model", "sft", "grpo", "evaluation")}
    (folder / "configs/ablations/small/kl.yaml").write_text(
        yaml.safe_dump({**plan, "seeds": [0], "base": base})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("training.stages.sft.TOKENIZER_SCENARIOS", 10)
        status, printed = call("emads demo runs/demo --config configs/quick.yaml")
        assert status == 0, printed
        yield folder


def call(line: str) -> tuple[int, str]:
    """Return the status and the output of a command line."""
    words = shlex.split(
        re.sub(r"--count (\d+)", lambda found: f"--count {min(MOST, int(found[1]))}", line), comments=True
    )
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(words[1:])
    return status, out.getvalue() + err.getvalue()


@pytest.mark.slow
def test_the_commands_of_the_pages_do_what_they_say(folder: Path) -> None:
    """One test for all pages: a reader's commands use what the pages before made."""
    for page in list_pages():
        for line, shown in read_calls(page):
            if find_reason(line) is None:
                follow(line, shown, page.name)


def follow(line: str, shown: str | None, page: str) -> None:
    """Run a command of a page; it ends as the page says, and prints every line that the page shows."""
    assert line.startswith("emads "), f"{page}: {line}: run it here, or give a reason"
    status, printed = call(line)
    stated = re.search(r"exit status (\d)", line)
    assert status in (0, *([int(stated[1])] if stated else [])), f"{page}: {line}\n{printed[-2000:]}"
    for part in (shown or "").splitlines():
        assert part == "..." or part in printed.splitlines(), f"{page}: {line} does not print {part!r}"


def test_every_reason_is_needed_and_few_commands_are_left_out() -> None:
    lines = [line for page in list_pages() for line, _ in read_calls(page)]
    unused = [pattern for pattern in SKIPPED if not any(re.search(pattern, line) for line in lines)]
    assert unused == []
    ours = [line for line in lines if line.startswith("emads ")]
    assert sum(find_reason(line) is None for line in ours) > len(ours) / 2
