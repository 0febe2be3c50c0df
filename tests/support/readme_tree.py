"""The file tree of README.md, one line per file, from the first line of each module's docstring.

Run as a program it writes the tree into README.md again: python tests/support/readme_tree.py
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BEGIN, END = "<!-- TREE: python tests/support/readme_tree.py writes it -->\n```text\n", "```\n<!-- /TREE -->"
MAX_WORDS_CHARS = 92  # of a description
NAME_WIDTH = 29
FOLDERS = {
    "roles": "",
    "scenarios": "",
    "simulator": "",
    "evaluation": "",
    "training": "",
    "emads": "",
    "tests": "One file per module or promise.",
    "benchmarks": "Measurements that print tables.",
    "examples": "Cases in words and figures, and a role from outside.",
}
OTHERS = {
    "configs/demo.yaml": "what `make demo` runs, every key spelled out",
    "docs/decisions.md": "why things are as they are, with what was measured",
    "docs/evaluation.md": "baselines, statistics, gates, diagnostics, ablations, other benchmarks",
    "docs/role-training.md": "SFT and GRPO of a role: LoRA, validation, curriculum, alarms, other trainers",
    "docs/scenarios.md": "what each difficulty changes, text forms, baselines",
    "docs/tasks.md": "imported tasks, general verifiers, sandbox, splits",
    "docs/teacher.md": "demonstrations by a teacher model, and how they are checked",
    "docs/governance.md": "the full protocol: gate, decision log, effects, resume",
    "docs/write-a-family.md": "a family of scenarios in 60 lines",
    "docs/benchmark-scenarios.md": "rates, duplicates and overlap, beside a peer",
    "docs/verifier-audit.md": "how the verifiers are attacked, and what that found",
    "docs/simulate.md": "play, watch and export episodes, write a case, kinds of agents, rescore",
    "docs/environments.md": "PettingZoo, NeMo Gym's HTTP shape and verifiers, for other trainers",
    "langgraph.json": "LangGraph's own tools open the graph by it",
    ".ci/run": "all of CI: setup, lint and types, tests, demo",
    "Makefile": "demo, test, check, clean",
    "pyproject.toml": "package, dependencies, settings of ruff, mypy and pytest",
    "constraints.txt": "exact versions that were tested together",
}


def find_modules() -> list[str]:
    """Every Python file of the repository, hidden and generated folders left out."""
    paths = [path.relative_to(ROOT) for path in ROOT.rglob("*.py")]
    ignored = {"build", "dist", "runs"}
    return sorted(
        p.as_posix() for p in paths if p.parts[0] not in ignored and not p.as_posix().startswith(".")
    )


def describe(path: str) -> str:
    """The first line of the docstring, where it is long up to its last clause that fits; "" without one."""
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    line = docstring.split("\n")[0].rstrip(".")
    if len(line) <= MAX_WORDS_CHARS:
        return line
    ends = [line.rfind(mark, 0, MAX_WORDS_CHARS) for mark in (". ", "; ")]
    return line[: max(ends)] if max(ends) > 0 else line


def render_tree() -> str:
    """The block of README.md between its markers."""
    modules = find_modules()
    lines = []
    for top, words in FOLDERS.items():
        inside = [path for path in modules if path.split("/")[0] == top]
        folders = sorted({str(Path(path).parent) for path in inside} - {top})
        for folder in (top, *folders):
            depth = folder.count("/")
            package = f"{folder}/__init__.py"
            about = describe(package) if package in modules else words
            lines.append(_line(depth, f"{Path(folder).name}/", about))
            files = [p for p in inside if str(Path(p).parent) == folder and p != package]
            lines += [_line(depth + 1, Path(path).name, describe(path)) for path in files]
    lines += [_line(0, path, words) for path, words in OTHERS.items()]
    return "\n".join(lines) + "\n"


def read_tree(text: str) -> list[str]:
    """The paths that a rendered tree lists; a folder with an __init__.py stands for that file."""
    paths = []
    folders: list[str] = []
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        if name.endswith("/"):
            folders = [*folders[:depth], name]
            package = "".join(folders) + "__init__.py"
            if (ROOT / package).exists():
                paths.append(package)
        else:
            paths.append("".join(folders[:depth]) + name)
    return paths


def _line(depth: int, name: str, words: str) -> str:
    return f"{'  ' * depth + name:<{NAME_WIDTH}} {words}".rstrip()


def main() -> None:
    readme = ROOT / "README.md"
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = readme.read_text()
    if not block.search(text):
        raise SystemExit(f"{readme} has no block between {BEGIN!r} and {END!r}")
    readme.write_text(block.sub(lambda _: BEGIN + render_tree() + END, text))


if __name__ == "__main__":
    main()
