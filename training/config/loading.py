"""From YAML and --set to a RunConfig, and back to YAML. Every mistake is a UserError that names the key.

YAML is read strictly, see scenarios/written/strict_yaml.py.
"""

import difflib
import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from roles.errors import UserError, unknown
from scenarios.written.strict_yaml import parse_yaml, read_user_text
from training.config.rl_config import RLConfig
from training.config.run_config import RL_STAGES, RunConfig, correct_for_engine, spread_shared
from training.config.section import list_keys, section_of

LIST_OF_KEYS = "`emads demo --print-config` lists all keys"


def read_config_file(path: Path) -> dict[str, Any]:
    """The keys that a config file gives, unchecked.

    Raises:
        UserError: missing, not text, malformed, or not a mapping.
    """
    value = deepcopy(_parse_once(read_user_text(path, "config"), str(path)))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"config {path} must be a mapping of keys, got {type(value).__name__}")
    return value


_parse_once = lru_cache(maxsize=16)(parse_yaml)  # read at every stage, and strict YAML takes 25 ms


def apply_override(values: dict[str, Any], assignment: str) -> None:
    """Write one `a.b=value` (value in YAML) into nested `values`.

    Raises:
        UserError: no "=", an empty key, or a path through something that is not a section.
    """
    path, equals, text = assignment.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise UserError(
            f"--set {assignment!r} is not of the form section.key=value, e.g. --set grpo.max_steps=20"
        )
    for depth, key in enumerate(keys[:-1], start=1):
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise UserError(f"--set {assignment!r}: {'.'.join(keys[:depth])} is not a section")
    values[keys[-1]] = parse_yaml(text, f"--set {path}")


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """Defaults, then the file, then `--set a.b=c` overrides.

    Raises:
        UserError: names the first wrong key or value, what is allowed and the nearest match.
    """
    values = read_config_file(path) if path else {}
    for assignment in overrides:
        apply_override(values, assignment)
    return validate_config(values, str(path) if path else "the config file")


def validate_config(values: dict[str, Any], source: str) -> RunConfig:
    """`values` as a RunConfig; `source` is shown in mistakes. Raises as `load_config`."""
    try:
        text = json.dumps(correct_for_engine(spread_shared(values)))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{source} holds a value that a config cannot have: {error}") from None
    try:
        return RunConfig.model_validate_json(text)
    except ValidationError as error:
        details = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        raise _explain(details[0], source) from None


def _explain(error: ErrorDetails, source: str) -> UserError:
    path = error["loc"]
    where = ".".join(str(part) for part in path)
    keys = [part for part in path if isinstance(part, str)]
    section: type[BaseModel] = RunConfig
    for key in keys[:-1]:
        section = section_of(section.model_fields.get(key)) or section
    if error["type"] == "extra_forbidden":
        return _unknown_key(where, section, ".".join([*keys[:-1], ""]), source)
    value = json.dumps(error["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    field = section.model_fields.get(keys[-1]) if keys else None
    if error["type"] == "literal_error" and field is not None:
        known = [str(choice) for choice in get_args(field.annotation)]
        return unknown(f"value of config key {where}:", str(error["input"]), known)
    if error["type"] == "value_error":
        named = f"config key {where}: " if where else ""
        return UserError(f"{named}{error['ctx']['error']} (in {source} or by --set)")
    if field is None or section_of(field):
        return UserError(f"config key {where} = {shown}: must be a section with keys of its own")
    message = error["msg"][0].lower() + error["msg"][1:]
    default = json.dumps(field.get_default())
    remedy = f"change it in {source} or by --set {'.'.join(keys)}={default}"
    return UserError(
        f"config key {where} = {shown}: {message} ({field.description} Default {default}; {remedy})"
    )


def _unknown_key(where: str, section: type[BaseModel], prefix: str, source: str) -> UserError:
    """Name the nearest three keys of the section, those in the sections below included, and where all are."""
    known = [prefix + name for name in section.model_fields]
    nested = [name for name in list_keys(section, prefix) if name.endswith(f".{where.rpartition('.')[2]}")]
    near = list(dict.fromkeys([*nested, *difflib.get_close_matches(where, known, n=3, cutoff=0.4)]))[:3]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(f"unknown config key {where!r}{hint} (in {source} or by --set; {LIST_OF_KEYS})")


def render_config(config: RunConfig) -> str:
    """The resolved config as YAML with each field's meaning beside it; loads back to an equal config.

    What both stages of RL have alike stands once, in the section `rl`.
    """
    shared = {
        f"rl.{key}"
        for key in list_keys(RLConfig)
        if attrgetter(key)(config.grpo) == attrgetter(key)(config.marl)
    }
    lines = _render_section(
        config,
        "",
        lambda path: path.partition(".")[0] not in RL_STAGES or "rl." + path.partition(".")[2] not in shared,
    )
    start = lines.index(next(line for line in lines if line.startswith("grpo:")))
    common = ["rl:  # What GRPO and joint training have alike; a stage's own section may say otherwise."]
    common += _render_section(config.grpo, "  ", shared.__contains__, "rl.")
    return "\n".join([*lines[:start], *common, "", *lines[start:]]) + "\n"


def _render_section(
    section: BaseModel, indent: str, is_shown: Callable[[str], bool], prefix: str = ""
) -> list[str]:
    """Lines of a section's fields; of those inside sections, sections without any shown key left out."""
    lines = []
    for name, field in type(section).model_fields.items():
        value, path = getattr(section, name), prefix + name
        if isinstance(value, BaseModel):
            inner = _render_section(value, indent + "  ", is_shown, f"{path}.")
            title = f"{indent}{name}:  # {(type(value).__doc__ or '').splitlines()[0]}"
            lines += ["", title, *inner] if inner else []
        elif is_shown(path):
            plain = list(value) if isinstance(value, tuple) else value
            text = (
                yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
            )
            lines.append(f"{indent}{name}: {text}  # {field.description}")
    return lines
