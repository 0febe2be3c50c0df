"""Base of every config section, and the value ranges that several sections share."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY

MAX_COUNT = 1_000_000  # of anything that is drawn, played or kept: more never ends, or fills the memory
MAX_BATCH = 1_000_000  # completions that are played before the next optimizer step
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT)]
GroupSize = Annotated[int, Field(ge=2, le=1024)]  # a group of one has nobody to be compared with
Place = Annotated[int, Field(ge=0)]  # in the streams of scenarios and of chance
Rate = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
ClipRange = Annotated[float, Field(gt=0, lt=1)]
Temperature = Annotated[float, Field(gt=0, le=10)]
Difficulty = Annotated[int, Field(ge=MIN_DIFFICULTY, le=MAX_DIFFICULTY)]


class StrictRecord(BaseModel):
    """Base of what is read from files: exact types, finite numbers, unknown keys refused, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Section(StrictRecord):
    """Base of every config model; a docstring below a key says what it means."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    def changed(self, **changes: Any) -> Self:
        """A copy with other values, checked as a config file is; `__` leads into a section.

        Example: marl.changed(loss__clip_low=0.1, max_steps=3)

        Raises:
            ValidationError: an unknown key or a value out of range.
        """
        values = self.model_dump()
        for name, value in changes.items():
            *path, last = name.split("__")
            section = values
            for part in path:
                section = section[part]
            section[last] = value
        return type(self).model_validate(values)


def section_of(field: FieldInfo | None) -> type[BaseModel] | None:
    """The section that a key holds; None of any other key."""
    kind = None if field is None else field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def list_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all keys of a section; those of sections inside it follow the section's own name."""
    for name, field in section.model_fields.items():
        yield prefix + name
        if inner := section_of(field):
            yield from list_keys(inner, f"{prefix}{name}.")


def check_batch(size: int, name: str) -> None:
    """Raise ValueError where so many completions before one optimizer step fill the memory."""
    if size > MAX_BATCH:
        raise ValueError(f"{name} is {size:,} completions, at most {MAX_BATCH:,}")


def check_patience(patience: int, validate_every: int) -> None:
    """Raise ValueError where patience counts validations that never happen."""
    if patience and not validate_every:
        raise ValueError(f"patience {patience} needs validations: set validate_every")
