"""From YAML and --set to a RunConfig, and back to YAML. Every mistake is a UserError that names the key.

YAML is read as its 1.2 core schema: `1e-4` is a number, `no` is a string, dates are strings; repeated keys
are refused.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from roles.errors import UserError, unknown
from training.config import RunConfig


class _Loader(yaml.SafeLoader):
    """SafeLoader with the resolvers of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (yaml's own type)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are distinct strings."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is not a name", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is repeated", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), None
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), None)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    None,
)


def parse_yaml(text: str, source: str) -> Any:
    """The value of one YAML document.

    Raises:
        UserError: malformed, with source and line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{source}{line}: malformed YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{source}: malformed YAML: {str(error).splitlines()[0]}") from None


def read_config_file(path: Path) -> dict[str, Any]:
    """The keys that a config file gives, unchecked.

    Raises:
        UserError: missing, not text, malformed, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"config {path} is not UTF-8 text (byte {error.start})") from None
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"config {path} must be a mapping of keys, got {type(value).__name__}")
    return value


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
    """`values` as a RunConfig; `source` is where a mistake is to be mended.

    Raises:
        UserError: as `load_config`.
    """
    try:
        text = json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{source} holds a value that a config cannot have: {error}") from None
    try:
        return RunConfig.model_validate_json(text)
    except ValidationError as error:
        details = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        raise _explain(details[0], source) from None


def _section_at(path: Sequence[str | int]) -> type[BaseModel]:
    section: type[BaseModel] = RunConfig
    for key in path:
        field = section.model_fields.get(str(key))
        if field is None or not (
            isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        ):
            break
        section = field.annotation
    return section


def _explain(error: ErrorDetails, source: str) -> UserError:
    path = error["loc"]
    where = ".".join(str(part) for part in path)
    keys = [part for part in path if isinstance(part, str)]
    section = _section_at(keys[:-1])
    if error["type"] == "extra_forbidden":
        prefix = ".".join([*keys[:-1], ""])
        return unknown("config key", where, [prefix + name for name in section.model_fields])
    value = json.dumps(error["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    field = section.model_fields.get(keys[-1]) if keys else None
    if error["type"] == "literal_error" and field is not None:
        known = [str(choice) for choice in get_args(field.annotation)]
        return unknown(f"value of config key {where}:", str(error["input"]), known)
    if error["type"] == "value_error":
        return UserError(f"config key {where}: {error['ctx']['error']} (in {source} or by --set)")
    if field is None or (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
        return UserError(f"config key {where} = {shown}: must be a section with keys of its own")
    message = error["msg"][0].lower() + error["msg"][1:]
    default = json.dumps(field.get_default())
    remedy = f"change it in {source} or by --set {'.'.join(keys)}={default}"
    return UserError(
        f"config key {where} = {shown}: {message} ({field.description} Default {default}; {remedy})"
    )


def render_config(config: RunConfig) -> str:
    """The resolved config as YAML with each field's meaning beside it; loads back to an equal config."""
    return "\n".join(_render_section(config, indent="")) + "\n"


def _render_section(section: BaseModel, indent: str) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            lines += ["", f"{indent}{name}:  # {(type(value).__doc__ or '').splitlines()[0]}"]
            lines += _render_section(value, indent + "  ")
        else:
            plain = list(value) if isinstance(value, tuple) else value
            text = (
                yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
            )
            lines.append(f"{indent}{name}: {text}  # {field.description}")
    return lines
