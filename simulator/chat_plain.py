"""A chat whose tokens are characters: exact, deterministic, no tokenizer and no torch."""

from roles.base import Role

_MARKERS = ("<|end|>", "<|system|>", "<|user|>", "<|tool|>", "<|assistant|>")
_END, _SYSTEM, _USER, _TOOL, _ASSISTANT = range(len(_MARKERS))


class PlainChat:
    """Ids 0-4 are the markers, every other id a character; text never encodes to a marker.

    A role's system text is remembered by its name.

    Example: PlainChat().decode(PlainChat().encode("B")) == "B"
    """

    end_id = _END

    def __init__(self) -> None:
        self._openings: dict[tuple[str, bool], tuple[int, ...]] = {}

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        key = (role.name, with_tools)
        if key not in self._openings:
            tools = f"\nTools: {' '.join(tool.name for tool in role.tools)}." if with_tools else ""
            self._openings[key] = (_SYSTEM, *self.encode(f"{role.title}. {role.mandate}{tools}"), _END)
        return (*self._openings[key], *self.ask(brief))

    def observe(self, *texts: str) -> tuple[int, ...]:
        told = [(_TOOL, *self.encode(text), _END) for text in texts]
        return (*(token for one in told for token in one), _ASSISTANT)

    def ask(self, text: str) -> tuple[int, ...]:
        return (_USER, *self.encode(text), _END, _ASSISTANT)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(character) + len(_MARKERS) for character in text)

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == _END else ids
        return "".join(
            _MARKERS[token] if token < len(_MARKERS) else chr(token - len(_MARKERS)) for token in kept
        )
