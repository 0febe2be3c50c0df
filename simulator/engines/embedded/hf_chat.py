"""A Hugging Face tokenizer and its chat template as an append-only Chat."""

import json
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from roles.base import Role
from roles.errors import UserError
from simulator.tool_calls import CLOSE, OPEN, describe_tools

# what the code of a template can raise: it divides, looks up, calls what is not there, counts without end
_TEMPLATE_ERRORS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


_Shape = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]  # messages, and tools given beside them
MOST_OPENINGS = 1024  # shapes of first messages that are kept
MOST_PASSES = 8
OWN_MARKS = (OPEN, CLOSE, "<think>", "</think>")  # that assistants write as text, special or not


def pin_date(template: Any) -> Any:
    """The template, or the named ones, with a fixed date for the clock: servers render what was trained."""
    if isinstance(template, dict):
        return {name: pin_date(one) for name, one in template.items()}
    pinned = _CLOCK.sub(lambda found: repr(TEMPLATE_DATE.strftime(found[2])), template)
    return f"{_FIXED_CLOCK}{pinned}" if re.search(r"strftime_now\s*\(", pinned) else pinned


class HFChat:
    """Renders openings through the template, and later messages as the text the template would add.

    A template without a system role, without tools or without a tool role gets system text and tools in the
    first user message, and results of tools as user messages. `short_prompts` leaves the mandate paragraph
    out (a tiny model knows its one role by training).

    Raises:
        UserError: no template, a template that drops or repeats a message, or no single end-of-turn token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, short_prompts: bool = False) -> None:
        if tokenizer.chat_template is None:
            raise UserError("the tokenizer has no chat template; set chat_template in tokenizer_config.json")
        self._tokenizer = tokenizer
        # the Rust tokenizer, several times faster per call
        self._backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is None:
            raise UserError(f"{type(tokenizer).__name__} has no tokenizer.json; use a model that has one")
        self._short = short_prompts
        self._openings: dict[tuple[str, bool], tuple[int, list[str]]] = {}
        written = f"{tokenizer.chat_template}{self._render([*_TALK, _NEXT], add_generation_prompt=True)}"
        added = {
            number: one
            for number, one in tokenizer.added_tokens_decoder.items()
            if one.special or (str(one) in written and str(one) not in OWN_MARKS)
        }  # some families mark the names of who speaks as plain tokens
        self._control = set(added) - {tokenizer.unk_token_id}
        self._is_normalized = self._backend.normalizer is not None and any(
            one.normalized for one in added.values()
        )
        specials = {*map(str, tokenizer.all_special_tokens), *map(str, added.values())}
        self._specials = sorted(specials - {"", " "}, key=lambda token: (-len(token), token))
        self._check_prompt()
        self._end = self._find_end(_TALK)
        if self._end not in self._render_tail([_NEXT]):  # a turn that others follow ends in its own way
            self._end = self._find_end([*_TALK, _NEXT])
        self.end_id = self.encode_raw(self._end)[0]
        self._tool_role = self._find_tool_role()
        self._after = {kind: self._render_after(kind, [_SLOT]) for kind in ("user", "tool")}
        self._is_verbatim = all(
            self._render_after(kind, [_ODD]) == after.replace(_SLOT, _ODD)
            for kind, after in self._after.items()
        )  # else the template filters content, and every message is rendered anew
        self._between_tools = self._join_tools()
        header = self._after["user"].partition(_SLOT)[2]
        self._header = header[max([0, *(header.rfind(one) for one in self._specials)]) :]

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        number, parts = self._find_opening(role, with_tools)
        plain = self.neutralise(brief)
        if not parts:
            return self.encode_raw(self._render_shape(self._list_shapes(role, plain, with_tools)[number]))
        return self.encode_raw(plain.join(parts))

    def observe(self, *texts: str) -> tuple[int, ...]:
        return self._append("tool", texts)

    def ask(self, text: str) -> tuple[int, ...]:
        return self._append("user", [text])

    def _append(self, kind: str, texts: Sequence[str]) -> tuple[int, ...]:
        plain = [self.neutralise(text) for text in texts]
        if self._is_verbatim:
            rendered = self._after[kind].replace(_SLOT, self._between_tools.join(plain))
        else:
            rendered = self._render_after(kind, plain)
        return self._encode_after(self._end, rendered)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._encode_after(self._header, self.neutralise(text, kept=OWN_MARKS))

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == self.end_id else ids
        return str(self._backend.decode(list(kept), skip_special_tokens=False))

    def system_text(self, role: Role) -> str:
        """Return the system message with which this chat introduces the role."""
        return self.neutralise(f"{role.title}." if self._short else role.mandate)

    def encode_raw(self, text: str) -> tuple[int, ...]:
        """Return ids of already rendered text; special tokens in it are recognised."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def _encode_after(self, before: str, text: str) -> tuple[int, ...]:
        """Return ids of rendered text as it stands behind `before`, where that keeps its own ids.

        Some tokenizers begin a text with a space, and some tokens take the line end behind them.
        """
        known, whole = self.encode_raw(before), self.encode_raw(before + text)
        return whole[len(known) :] if whole[: len(known)] == known else self.encode_raw(text)

    def neutralise(self, text: str, kept: Sequence[str] = ()) -> str:
        """`text` with every special token broken by a space, so that it is plain text to the model."""
        before, passes = "", 0
        while text != before and passes < MOST_PASSES:  # what a space breaks may itself be a token
            before, passes = text, passes + 1
            for token in self._specials:
                if token in text and token not in kept:
                    text = text.replace(token, _break(token))
        while self._is_normalized:  # other characters may become those of a token
            read = self._backend.encode(text, add_special_tokens=False)
            start = next(
                (
                    start
                    for number, (start, end) in zip(read.ids, read.offsets, strict=True)
                    if number in self._control and text[start:end].strip() not in kept
                ),
                None,
            )
            if start is None:
                break
            text = f"{text[: start + 1]} {text[start + 1 :]}"
        return text

    def _neutralise_all(self, value: Any) -> Any:
        """The JSON value with all its texts neutralised."""
        if isinstance(value, dict):
            return {self.neutralise(key): self._neutralise_all(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._neutralise_all(one) for one in value]
        return self.neutralise(value) if isinstance(value, str) else value

    def _render(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        template = self._tokenizer.chat_template
        if isinstance(template, dict):  # another one for tools would not continue what this one began
            kwargs["chat_template"] = template.get("default", next(iter(template.values())))
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, strftime_now=TEMPLATE_DATE.strftime, **kwargs
                )
            )
        except _TEMPLATE_ERRORS as error:  # a stranger's template is kept in a sandbox
            raise UserError(f"the tokenizer's chat template cannot be used: {error}; mend it") from None

    def _list_shapes(self, role: Role, brief: str, with_tools: bool) -> list[_Shape]:
        """First messages: with tools beside them, with tools in words, and all in the user's message."""
        system = self.system_text(role)
        tools = [self._neutralise_all(tool.as_chat_tool()) for tool in role.tools] if with_tools else []
        in_words = f"{system}\n\n{describe_tools(tools)}" if tools else system
        said = {"role": "user", "content": brief}
        folded = [{"role": "user", "content": f"{in_words}\n\n{brief}"}]
        first: list[list[dict[str, Any]]] = [
            [{"role": "system", "content": one}, said] for one in (system, in_words)
        ]
        return [(first[0], tools or None), (first[1], None), (folded, None)]

    def _render_shape(self, shape: _Shape) -> str:
        return self._render(shape[0], tools=shape[1], add_generation_prompt=True)

    def _find_opening(self, role: Role, with_tools: bool) -> tuple[int, list[str]]:
        """Return the number of the first shape that the template renders whole, and the text around a brief.

        No text where the template filters the brief.
        """
        key = (role.name, with_tools)
        if key not in self._openings:
            if len(self._openings) >= MOST_OPENINGS:
                self._openings.clear()
            self._openings[key] = self._choose_shape(role, with_tools)
        return self._openings[key]

    def _choose_shape(self, role: Role, with_tools: bool) -> tuple[int, list[str]]:
        refused: UserError | None = None
        odd = self._list_shapes(role, _ODD, with_tools)
        for number, shape in enumerate(self._list_shapes(role, _SLOT, with_tools)):
            try:
                text = self._render_shape(shape)
                if shape[1] is not None and text == self._render_shape((shape[0], None)):
                    continue  # it ignores tools
                has_tools = all(tool.name in text for tool in role.tools) or not with_tools
                if _count(self.system_text(role), text) == 1 == text.count(_SLOT) and has_tools:
                    is_verbatim = self._render_shape(odd[number]) == text.replace(_SLOT, _ODD)
                    return number, text.split(_SLOT) if is_verbatim else []
            except UserError as error:
                refused = error
        raise refused or UserError(
            "the tokenizer's chat template cannot be used: it drops or repeats the first messages; mend it"
        )

    def _render_tail(self, said: list[dict[str, Any]]) -> str:
        """Return what follows the text of an assistant's turn up to the next generation prompt."""
        return _cut_after(_TURN, self._render([*_TALK, *said], add_generation_prompt=True))

    def _check_prompt(self) -> None:
        """Refuse a template that writes who speaks before an assistant's turn, and not to ask for one."""
        asked, told = (self._render(_TALK[:1], add_generation_prompt=one) for one in (True, False))
        before = self._render(_TALK).partition(_TURN)[0]
        header = before.removeprefix(asked).strip()
        if asked == told and before.startswith(asked) and header:
            raise UserError(
                f"the chat template writes {header!r} before an assistant's turn, but ignores"
                " add_generation_prompt; mend it"
            )

    def _find_end(self, talk: list[dict[str, Any]]) -> str:
        """Return the token that ends an assistant's turn: the first after its text."""
        rest = _cut_after(_TURN, self._render(talk))
        eos = str(self._tokenizer.eos_token)
        if rest.startswith(eos):
            return eos
        ended = rest.strip()
        first = next((token for token in self._specials if ended.startswith(token)), ended)
        if len(self.encode_raw(first)) != 1:
            raise UserError(
                f"the chat template ends a turn with {first!r}, which is not one token; add it as one"
            )
        return first

    def _find_tool_role(self) -> str:
        """Return "tool", or "user" where the template has no messages of tools."""
        for self._tool_role in ("tool", "user"):
            try:
                if _SLOT in self._render_after("tool", [_SLOT]):
                    return self._tool_role
            except UserError:
                pass
        raise UserError("the chat template takes neither tool nor user messages after a turn; mend it")

    def _render_after(self, kind: str, texts: Sequence[str]) -> str:
        """Return what follows the end of an assistant's turn up to the next generation prompt."""
        if kind == "user":
            said = [{"role": "user", "content": text} for text in texts]
        elif self._tool_role == "tool":
            said = [
                {"role": "tool", "tool_call_id": f"c{number:08d}", "content": text}
                for number, text in enumerate(texts)
            ]
        else:
            results = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
            said = [{"role": "user", "content": results}]
        return _cut_after(self._end, self._render_tail(said))

    def _join_tools(self) -> str:
        """Return the text between two observations of a turn; a line end where a template takes only one."""
        try:
            rendered = self._render_after("tool", [_SLOT, _OTHER])
        except UserError:
            return "\n"
        _, found, after = rendered.partition(_SLOT)
        between, found_other, _ = after.partition(_OTHER)
        return between if found and found_other else "\n"


def _break(token: str) -> str:
    """The token's text with a space after its first character; a space where that would hold it again."""
    broken = f"{token[0]} {token[1:]}" if len(token) > 1 else " "
    return " " if token in broken else broken


def _cut_after(mark: str, rendered: str) -> str:
    """Return what follows the first mark.

    Raises:
        UserError: the template drops it.
    """
    _, found, after = rendered.partition(mark)
    if not found:
        raise UserError(
            f"the chat template drops {mark!r} of an assistant's turn that others follow; mend it"
        )
    return after


def _count(content: str, rendered: str) -> int:
    """Count how often a content stands in rendered text, as it is, trimmed, or written as JSON."""
    forms = {content.strip(), *(json.dumps(content, ensure_ascii=ascii)[1:-1] for ascii in (True, False))}
    return max(rendered.count(form) for form in forms)


_CLOCK = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
_FIELDS = ("%d", "%e", "%m", "%b", "%B", "%a", "%A", "%Y", "%y", "%H", "%M", "%S")
TEMPLATE_DATE = date(2026, 1, 1)  # for templates that read the clock: equal prompts on every day
_FIXED_CLOCK = (
    "{%- macro strftime_now(form) -%}{{ form"
    + "".join(f" | replace('{one}', '{TEMPLATE_DATE.strftime(one)}')" for one in _FIELDS)
    + " }}{%- endmacro -%}"
)  # where the form is computed
_TURN = "\u27e6turn\u27e7"
_ODD = ' \u27e6"odd"\u27e7\n '  # changes under trim and tojson
_TALK = [{"role": "user", "content": "u"}, {"role": "assistant", "content": _TURN}]
_NEXT = {"role": "user", "content": "n"}
_SLOT = "\u27e6slot\u27e7"
_OTHER = "\u27e6other\u27e7"
