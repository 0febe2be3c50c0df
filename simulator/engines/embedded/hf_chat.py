"""A Hugging Face tokenizer and its chat template as an append-only Chat."""

from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from roles.base import Role
from roles.errors import UserError

# what the code of a template can raise: it divides, looks up, calls what is not there, counts without end
_TEMPLATE_ERRORS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class HFChat:
    """Renders openings through the template, and later messages as the text the template would add.

    `short_prompts` leaves the mandate paragraph out (a tiny model knows its one role by training).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, short_prompts: bool = False) -> None:
        if tokenizer.chat_template is None:
            raise ValueError("the tokenizer has no chat template; set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._backend: Any = tokenizer.backend_tokenizer  # the Rust tokenizer, several times faster per call
        self._short = short_prompts
        self._openings: dict[tuple[str, bool], tuple[str, str]] = {}
        self._specials = sorted((str(token) for token in tokenizer.all_special_tokens), key=len, reverse=True)
        self._assistant_end, self._ends = self._end_of_turn()
        ends = self.encode_raw(self._assistant_end)
        if len(ends) != 1:
            raise ValueError(
                f"the chat template ends a turn with {self._assistant_end!r}, which is not one token"
            )
        self.end_id = ends[0]
        self._between_tools = self._join_tools()

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        key = (role.name, with_tools)
        if key not in self._openings:
            self._openings[key] = self._split_opening(role, with_tools)
        before, after = self._openings[key]
        return self.encode_raw(before + self.neutralise(brief) + after)

    def observe(self, *texts: str) -> tuple[int, ...]:
        told = self._between_tools.join(self.neutralise(text) for text in texts)
        return self.encode_raw(self._ends["tool"].replace(_SLOT, told))

    def ask(self, text: str) -> tuple[int, ...]:
        return self.encode_raw(self._ends["user"].replace(_SLOT, self.neutralise(text)))

    def encode(self, text: str) -> tuple[int, ...]:
        return self.encode_raw(text)

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == self.end_id else ids
        return str(self._backend.decode(list(kept), skip_special_tokens=False))

    def system_text(self, role: Role) -> str:
        """Return the system message with which this chat introduces the role."""
        return f"{role.title}." if self._short else role.mandate

    def encode_raw(self, text: str) -> tuple[int, ...]:
        """Return ids of already rendered text; special tokens in it are recognised."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def neutralise(self, text: str) -> str:
        """`text` with every special token broken by a space, so that it is plain text to the model."""
        for token in self._specials:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _render(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **kwargs))
        except _TEMPLATE_ERRORS as error:  # a stranger's template is kept in a sandbox
            raise UserError(f"the tokenizer's chat template cannot be used: {error}; mend it") from None

    def _split_opening(self, role: Role, with_tools: bool) -> tuple[str, str]:
        messages = [{"role": "system", "content": self.system_text(role)}, {"role": "user", "content": _SLOT}]
        tools = [tool.as_chat_tool() for tool in role.tools] if with_tools else None
        before, after = self._render(messages, tools=tools, add_generation_prompt=True).split(_SLOT)
        return before, after

    def _end_of_turn(self) -> tuple[str, dict[str, str]]:
        """Return the end-of-turn text, and per kind of message the text up to the next generation prompt."""
        talk = [{"role": "user", "content": "u"}, {"role": "assistant", "content": _SLOT}]
        rendered = self._render(talk)
        rest = rendered[rendered.rindex(_SLOT) + len(_SLOT) :]
        end = str(self._tokenizer.eos_token)
        if not rest.startswith(end):
            end = rest.strip()
        ends = {}
        for kind in ("tool", "user"):
            longer = self._render([*talk, {"role": kind, "content": _OTHER}], add_generation_prompt=True)
            tail = longer[longer.rindex(_SLOT) + len(_SLOT) :]
            ends[kind] = tail[len(end) :].replace(_OTHER, _SLOT)
        return end, ends

    def _join_tools(self) -> str:
        """Return the text between two observations of a turn; a line end where a template takes only one."""
        talk = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
        told = [{"role": "tool", "content": _SLOT}, {"role": "tool", "content": _OTHER}]
        try:
            rendered = self._render([*talk, *told], add_generation_prompt=True)
        except UserError:
            return "\n"
        _, found, after = rendered.partition(_SLOT)
        between, found_other, _ = after.partition(_OTHER)
        return between if found and found_other else "\n"


_SLOT = "\u27e6slot\u27e7"
_OTHER = "\u27e6other\u27e7"
