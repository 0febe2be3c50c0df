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
from simulator.tool_calls import describe_tools

# what the code of a template can raise: it divides, looks up, calls what is not there, counts without end
_TEMPLATE_ERRORS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


_Opening = tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str]
MOST_OPENINGS = 1024  # rendered ones that are kept


def pin_date(template: str) -> str:
    """The template with a fixed date where it reads the clock: servers then render what was trained."""
    return _CLOCK.sub(lambda found: repr(TEMPLATE_DATE.strftime(found[2])), template)


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
        self._backend: Any = tokenizer.backend_tokenizer  # the Rust tokenizer, several times faster per call
        self._short = short_prompts
        self._openings: dict[tuple[str, bool], tuple[str, str]] = {}
        added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
        specials = {*map(str, tokenizer.all_special_tokens), *added}
        self._specials = sorted(specials, key=lambda token: (-len(token), token))
        self._end = self._find_end(_TALK)
        if self._end not in self._render_tail([_NEXT]):  # a turn that others follow ends in its own way
            self._end = self._find_end([*_TALK, _NEXT])
        self.end_id = self.encode_raw(self._end)[0]
        self._tool_role = self._find_tool_role()
        self._is_verbatim = all(
            self._render_after(kind, [_ODD]) == self._render_after(kind, [_SLOT]).replace(_SLOT, _ODD)
            for kind in ("user", "tool")
        )  # else the template filters content, and every message is rendered anew
        self._after = {kind: self._render_after(kind, [_SLOT]) for kind in ("user", "tool")}
        self._between_tools = self._join_tools()

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        plain = self.neutralise(brief)
        if not self._is_verbatim:
            return self.encode_raw(self._render_opening(role, plain, with_tools)[2])
        key = (role.name, with_tools)
        if key not in self._openings:
            before, after = self._render_opening(role, _SLOT, with_tools)[2].split(_SLOT)
            if len(self._openings) >= MOST_OPENINGS:
                self._openings.clear()
            self._openings[key] = before, after
        before, after = self._openings[key]
        return self.encode_raw(before + plain + after)

    def observe(self, *texts: str) -> tuple[int, ...]:
        plain = [self.neutralise(text) for text in texts]
        if not self._is_verbatim:
            return self.encode_raw(self._render_after("tool", plain))
        return self.encode_raw(self._after["tool"].replace(_SLOT, self._between_tools.join(plain)))

    def ask(self, text: str) -> tuple[int, ...]:
        plain = self.neutralise(text)
        if not self._is_verbatim:
            return self.encode_raw(self._render_after("user", [plain]))
        return self.encode_raw(self._after["user"].replace(_SLOT, plain))

    def encode(self, text: str) -> tuple[int, ...]:
        return self.encode_raw(text)

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == self.end_id else ids
        return str(self._backend.decode(list(kept), skip_special_tokens=False))

    def list_opening(self, role: Role, brief: str, *, with_tools: bool) -> dict[str, Any]:
        """Return the messages, and the tools, that a server of this model is sent for the same prompt."""
        messages, tools, _ = self._render_opening(role, self.neutralise(brief), with_tools)
        return {"messages": messages, "tools": tools}

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
                text = text.replace(token, f"{token[0]} {token[1:]}" if len(token) > 1 else " ")
        return text

    def _neutralise_all(self, value: Any) -> Any:
        """The JSON value with all its texts neutralised."""
        if isinstance(value, dict):
            return {key: self._neutralise_all(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._neutralise_all(one) for one in value]
        return self.neutralise(value) if isinstance(value, str) else value

    def _render(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, strftime_now=TEMPLATE_DATE.strftime, **kwargs
                )
            )
        except _TEMPLATE_ERRORS as error:  # a stranger's template is kept in a sandbox
            raise UserError(f"the tokenizer's chat template cannot be used: {error}; mend it") from None

    def _render_opening(self, role: Role, brief: str, with_tools: bool) -> _Opening:
        """Render the first messages; what the template drops or refuses is told in the messages it takes.

        Returns: the messages, the tools that the template is given beside them, and the text.
        """
        system = self.system_text(role)
        tools = [self._neutralise_all(tool.as_chat_tool()) for tool in role.tools] if with_tools else []
        in_words = f"{system}\n\n{describe_tools(tools)}" if tools else system
        pair = [{"role": "system", "content": system}, {"role": "user", "content": brief}]
        told = [{"role": "system", "content": in_words}, pair[1]]
        folded = [{"role": "user", "content": f"{in_words}\n\n{brief}"}]
        refused: UserError | None = None
        for messages, offered in ((pair, tools or None), (told, None), (folded, None)):
            try:
                text = self._render(messages, tools=offered, add_generation_prompt=True)
            except UserError as error:
                refused = error
                continue
            has_tools = all(tool.name in text for tool in role.tools) or not with_tools
            if _count(system, text) == 1 and _count(brief, text) >= 1 and has_tools:
                return messages, offered, text
        raise refused or UserError(
            "the tokenizer's chat template cannot be used: it drops or repeats the first messages; mend it"
        )

    def _render_tail(self, said: list[dict[str, Any]]) -> str:
        """Return what follows the text of an assistant's turn up to the next generation prompt."""
        rendered = self._render([*_TALK, *said], add_generation_prompt=True)
        return rendered[rendered.index(_TURN) + len(_TURN) :]

    def _find_end(self, talk: list[dict[str, Any]]) -> str:
        """Return the token that ends an assistant's turn: the first after its text."""
        rendered = self._render(talk)
        rest = rendered[rendered.rindex(_TURN) + len(_TURN) :]
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
        tail = self._render_tail(said)
        return tail[tail.index(self._end) + len(self._end) :]

    def _join_tools(self) -> str:
        """Return the text between two observations of a turn; a line end where a template takes only one."""
        try:
            rendered = self._render_after("tool", [_SLOT, _OTHER])
        except UserError:
            return "\n"
        _, found, after = rendered.partition(_SLOT)
        between, found_other, _ = after.partition(_OTHER)
        return between if found and found_other else "\n"


def _count(content: str, rendered: str) -> int:
    """Count how often a content stands in rendered text, as it is, trimmed, or written as JSON."""
    forms = {content.strip(), *(json.dumps(content, ensure_ascii=ascii)[1:-1] for ascii in (True, False))}
    return max(rendered.count(form) for form in forms)


_CLOCK = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
TEMPLATE_DATE = date(2026, 1, 1)  # for templates that read the clock: equal prompts on every day
_TURN = "\u27e6turn\u27e7"
_ODD = ' \u27e6"odd"\u27e7\n '  # changes under trim and tojson
_TALK = [{"role": "user", "content": "u"}, {"role": "assistant", "content": _TURN}]
_NEXT = {"role": "user", "content": "n"}
_SLOT = "\u27e6slot\u27e7"
_OTHER = "\u27e6other\u27e7"
