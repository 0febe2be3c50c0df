"""Write the pages that follow from the code into docs/reference/: keys, commands, cases, Python API.

    python docs/generate_reference.py

`make docs` runs it before mkdocs. The pages are not committed.
"""

import base64
import json
import random
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
PYTHON_NAMES = (
    *("load_team", "play", "generate", "train", "evaluate", "open_run"),
    *("PlayedCase", "Team", "Run", "UserError", "FaultyPlayError"),
)
# mkdocstrings fills this page from docstrings, without importing the package.
PYTHON_PAGE = "# Python API\n\n`import emads` loads no torch; names load on first use.\n" + "".join(
    f"\n::: emads.{name}\n" for name in PYTHON_NAMES
)


FAMILIES_HEAD = """\
# Model families

Each family as a tiny random model with a tokenizer and a chat template of its kind, through base, a step of
SFT, of GRPO and of joint training of LoRA adapters, export and reload, on a CPU in float32.
Log-probabilities of sampled tokens, of stored weights that are loaded again, of merged weights and of GGUF
files are compared with the model's own forward pass at each hand-over, and so are gradients; the table shows
a bound of all differences, WORST at most. What a base does is found out by probes, never by its name:
families that are not listed are checked in the same way before they are trained. Published weights were not
trained here, those of SmolLM2 apart.

- **works**: the embedded engine decodes it in batches with a cache.
- **own pass**: it has windows, states or positions that those steps do not know. The engine computes each
  text anew for every token, which is slow and right. `engine.name: vllm` is faster.
- **refused**: before anything is trained, with the reason.

`row_layout: padded` stands for `sft.row_layout`, `grpo.memory.row_layout` and `marl.memory.row_layout`. A
base that needs it is refused without it, and so is one that needs `model.lora_targets`: names of linear
layers that see every token, as in `[q_proj, k_proj, v_proj, o_proj]` (Mamba: `[in_proj, x_proj]`).

| family | `model_type` | result | differs by less than | set | GGUF |
|---|---|---|---:|---|---|"""


def describe_type(field: FieldInfo, schema: dict[str, Any]) -> str:
    """The type of one key as a user reads it: allowed values, else the JSON type with its bounds."""
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(describe_type(field, part) for part in schema["anyOf"])
    kind = {"number": "number", "integer": "integer", "string": "text", "boolean": "true or false"}.get(
        schema.get("type", ""), schema.get("type", "value")
    )
    if kind == "array":
        return f"list of {describe_type(field, schema.get('items', {}))}"
    if kind == "object":
        return "mapping"
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    return ", ".join([kind, *bounds])


def show_default(value: Any) -> str:
    """A default as it is written in YAML; empty text for a key that must be given."""
    if isinstance(value, tuple):
        value = list(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip().removesuffix("...").strip()
    return f"`{text}`"


def is_section(field: FieldInfo) -> bool:
    """Tell whether a field holds keys of its own."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def render_section(model: type[BaseModel], path: str) -> Iterator[str]:
    """Lines of one section of the config and of the sections inside it."""
    properties = model.model_json_schema()["properties"]
    keys = {name: field for name, field in model.model_fields.items() if not is_section(field)}
    sections = {name: field for name, field in model.model_fields.items() if is_section(field)}
    yield f"## {path or 'At the top'}\n"
    yield f"{next(iter((model.__doc__ or '').strip().splitlines()), '')}\n"
    if keys:
        yield "| key | type | default | meaning |"
        yield "|---|---|---|---|"
    for name, field in keys.items():
        full = f"{path}.{name}" if path else name
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        kind = describe_type(field, properties[name]).replace("|", "\\|")
        default = show_default(field.get_default(call_default_factory=True))
        yield f"| `{full}` | {kind} | {default} | {meaning} |"
    yield ""
    for name, field in sections.items():
        assert isinstance(field.annotation, type)
        yield from render_section(field.annotation, f"{path}.{name}" if path else name)


def render_configuration() -> str:
    """The page of all configuration keys."""
    from training.config.run_config import RunConfig

    head = (
        "# Configuration keys\n\n"
        "Every key of a run's configuration, with its type, default and meaning. The defaults are those of\n"
        "`emads demo`. A YAML file given by `--config` is read first, then single keys given by\n"
        "`--set section.key=value`. Unknown keys, wrong types and values out of range are refused before\n"
        "anything starts. `emads demo --print-config` prints the resolved configuration.\n"
    )
    return "\n".join([head, *render_section(RunConfig, "")])


def find_commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    if getattr(command, "invoke_without_command", False):
        yield " ".join(words), command
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from find_commands(inner, (*words, name))
    else:
        yield " ".join(words), command


def render_command(name: str, command: Any) -> Iterator[str]:
    """Lines of one command: what it does, its arguments and its options."""
    yield f"## {name}\n"
    yield f"{(command.help or '').strip()}\n"
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(_show_argument(each) for each in arguments)
    yield f"```text\n{' '.join(filter(None, [name, usage, '[OPTIONS]' if options else '']))}\n```\n"
    if arguments or options:
        yield "| argument or option | default | meaning |"
        yield "|---|---|---|"
    for each in arguments:
        yield _render_row(f"`{_show_argument(each)}`", each)
    for each in options:
        yield _render_row(", ".join(f"`{spelling}`" for spelling in each.opts + each.secondary_opts), each)
    yield ""


def _show_argument(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _render_row(name: str, parameter: Any) -> str:
    default = "required" if parameter.required else parameter.default
    if default is None or default is False or default in ((), []):
        shown = ""
    else:
        shown = default if default == "required" else f"`{default}`"
    meaning = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {name} | {shown} | {meaning} |"


def render_commands() -> str:
    """The page of all commands."""
    from emads.cli import app

    head = (
        "# Commands\n\nEvery command with its arguments and options, as `emads COMMAND --help` shows them.\n"
        "\nA mistake in a command is one line on standard error and exit status 2; other statuses stand\n"
        "in [Runs, resume and exit statuses](../how-to/runs.md#exit-statuses).\n"
    )
    commands = find_commands(typer.main.get_command(app), ("emads",))
    return "\n".join([head, *(line for name, each in commands for line in render_command(name, each))])


def render_jobs() -> str:
    """The page of cases: two of every whole job, with the answer and how an expert comes to it."""
    from scenarios.tasks.registry import JOBS, TASK_FAMILIES, TASK_ROLES

    lines = [
        "# Cases of the whole jobs\n",
        "Training case 7 of seed 0 at difficulties 3 and 8, as `emads generate` makes them. The system text",
        "with the rules stands once per job; [Whole jobs](../explanation/whole-jobs.md) explains them.\n",
    ]
    for name in JOBS:
        family, role = TASK_FAMILIES[name], TASK_ROLES[name]
        lines += [f"## {role.title}: {name}\n", f"```text\n{textwrap.fill(role.mandate, 110)}\n```\n"]
        for difficulty in (3, 8):
            case = family.generate("train", 0, 7, difficulty)
            lines += [
                f"### {name}, difficulty {difficulty}\n",
                f"```text\n{case.brief}\n```\n",
                "An expert:\n",
            ]
            shown = []
            for step in family.demonstrate(case, random.Random(0)):
                shown.append(step.text)
                if step.call is not None:
                    shown.append(f"-> {step.call.name}({json.dumps(step.call.arguments)})")
                    shown.append(f"<- {family.call_tool(case, step.call)}")
            lines += ["```text", *filter(None, shown), "```\n"]
    return "\n".join(lines)


def render_families() -> str:
    """The page of model families, from what the model zoo recorded."""
    found = json.loads((ROOT / "docs" / "model_families.json").read_text())
    worst = max(one["largest_difference"] for one in found.values())
    lines = [FAMILIES_HEAD.replace("WORST", f"{worst:g}")]
    for name, one in found.items():
        result = f"refused: {one['reason']}" if one["reason"] else one["result"]
        needs = ", ".join(f"`{key}`" for key in one["needs"])
        gguf = (
            "no"
            if "is not written here" in one["gguf"]
            else one["gguf"].replace("the file would not hold", "no:")
        )
        most = "" if one["reason"] else f"{one['largest_difference']:g}"
        lines.append(f"| {name} | `{one['kind']}` | {result} | {most} | {needs} | {gguf} |")
    return "\n".join([*lines, ""])


def render_notebook(path: Path) -> str:
    """The page of a notebook with the outputs that it was stored with; pictures are written beside it."""
    lines = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        lines.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for place, output in enumerate(cell.get("outputs", [])):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                picture = TARGET / f"{path.stem}-{cell['id']}-{place}.png"
                picture.write_bytes(base64.b64decode(data["image/png"]))
                lines.append(f"![Output of the cell]({picture.name})")
            else:
                lines.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join([*lines, f"This page is `{path.relative_to(ROOT)}`, which CI executes.\n"])


def main() -> None:
    """Write every generated page."""
    sys.path.insert(0, str(ROOT))
    TARGET.mkdir(exist_ok=True)
    (TARGET / "configuration.md").write_text(render_configuration())
    (TARGET / "commands.md").write_text(render_commands())
    (TARGET / "python.md").write_text(PYTHON_PAGE)
    (TARGET / "job-cases.md").write_text(render_jobs())
    (TARGET / "model-families.md").write_text(render_families())
    (TARGET / "quickstart.md").write_text(render_notebook(ROOT / "examples" / "quickstart.ipynb"))


if __name__ == "__main__":
    main()
