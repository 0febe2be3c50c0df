"""Scenarios as TRL's `environment_factory`: tools as methods, and the reward of what was played.

GRPOTrainer(..., environment_factory=environment_factory("cost"), reward_funcs=[played_reward]); rows come
from `training.data.interop.write_trl_folder` or hold the same columns.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roles.base import Tool
from roles.errors import unknown
from scenarios.base import Style
from scenarios.registry import families
from serving.environments.plays import KINDS, Kind, ScenarioName, start_play

COORDINATES = ("family", "split", "seed", "index", "difficulty")


def environment_factory(family: str, kinds: Mapping[str, Kind] = KINDS) -> type:
    """A class for TRL's `environment_factory`: `reset(**row)`, the tools as methods.

    A row's `style` "short" plays a role family in its short texts.

    Raises:
        UserError: unknown family.
    """
    if family not in kinds:
        raise unknown("family", family, list(kinds))
    first = start_play(
        ScenarioName(family=family, split="train", seed=0, index=0, difficulty=1), kinds
    )  # tools are the same in every scenario of a family
    methods = {tool.name: _make_method(tool) for tool in first.tools}
    name = f"{first.role.title.replace(' ', '')}Environment"
    return type(name, (_Environment,), {**methods, "_kinds": kinds})


def played_reward(completions: Sequence[Any], environments: Sequence[Any], **_columns: Any) -> list[float]:
    """The role reward of every completion with the calls that led to it. For TRL's `reward_funcs`."""
    texts = [one if isinstance(one, str) else str(one[-1].get("content") or "") for one in completions]
    return [one._play.answer(text).reward for one, text in zip(environments, texts, strict=True)]


class _Environment:
    """One rollout of one case; TRL makes as many as it needs and resets them."""

    _kinds: Mapping[str, Kind]

    def reset(self, **row: Any) -> None:
        """Take the case whose coordinates the row holds."""
        name = ScenarioName.model_validate({key: row[key] for key in COORDINATES})
        style: Style = row.get("style", "full")
        kinds = self._kinds
        if style == "short" and name.family in families(style):
            kind = kinds[name.family]
            kinds = {name.family: Kind(family=families(style)[name.family], find_role=kind.find_role)}
        self._play = start_play(name, kinds)


def _make_method(tool: Tool) -> Callable[..., str]:
    """A method with the signature, types and docstring from which TRL writes the tool's schema."""

    def method(self: Any, **arguments: Any) -> str:
        return str(self._play.call(tool.name, arguments))

    properties = tool.parameters["properties"]
    hints = {name: _hint(schema) for name, schema in properties.items()}
    lines = [f"    {name}: {schema.get('description', name)}" for name, schema in properties.items()]
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join([tool.description, *(["", "Args:", *lines] if lines else [])])
    method.__annotations__ = {**hints, "return": str}
    names = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    names += [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint)
        for name, hint in hints.items()
    ]
    method.__signature__ = inspect.Signature(names, return_annotation=str)  # type: ignore[attr-defined]
    return method


def _hint(schema: dict[str, Any]) -> Any:
    kind = schema["type"]
    if kind == "array":
        return list[_hint(schema["items"])]  # type: ignore[misc]
    if kind == "object":
        return dict[str, _hint(schema["additionalProperties"])]  # type: ignore[misc]
    return {"string": str, "integer": int, "number": float, "boolean": bool}[kind]
