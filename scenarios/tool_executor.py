"""Tool calls of one episode: a budget of calls, and results shared between rollouts.

Tools are pure functions of a scenario's facts, so what one rollout has asked is known to the next.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.base import Family, Scenario, ToolCall, ToolError

MAX_ENTRIES = 4096
MAX_KEY_CHARS = 2000  # longer arguments are not worth keeping


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Result of a tool call, and the inputs that it depends on."""

    call_tool: Callable[[Scenario, ToolCall], str]
    facts: Mapping[str, Any]
    text: str
    is_error: bool


class ResultCache:
    """The latest `max_entries` results of tool calls, least recently used ones forgotten first. Thread-safe.

    A result is used again only for the same tool on equal facts, whatever the scenario's key says.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, got {max_entries}")
        self.num_hits = self.num_misses = 0
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def call(self, family: Family, scenario: Scenario, call: ToolCall) -> str:
        """Result of `family.call_tool`, from memory where it was asked before.

        Raises:
            ToolError: as the tool does.
        """
        words = _spell(call)
        if words is None:
            return family.call_tool(scenario, call)
        key = (scenario.key, words)
        entry = self._find(key, family, scenario)
        if entry is None:
            entry = _ask(family, scenario, call)
            self._keep(key, entry)
        if entry.is_error:
            raise ToolError(entry.text)
        return entry.text

    def _find(self, key: tuple[str, str], family: Family, scenario: Scenario) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(key)
            known = entry is not None and entry.call_tool is family.call_tool and _same(entry, scenario)
            if known:
                self._entries.move_to_end(key)
            self.num_hits += known
            self.num_misses += not known
            return entry if known else None

    def _keep(self, key: tuple[str, str], entry: _Entry) -> None:
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)


class ToolExecutor:
    """The tools of one episode, to be called like `family.call_tool` without the scenario. Thread-safe.

    The call after the last of `max_calls` (the family's own by default) and all later ones are refused.

    Example: ToolExecutor(FAMILIES["cto"], scenario)(ToolCall(name="measure", arguments={"option": "A"}))
    """

    def __init__(
        self,
        family: Family,
        scenario: Scenario,
        *,
        max_calls: int | None = None,
        results: ResultCache | None = None,
    ) -> None:
        self.num_calls = 0  # refused ones included
        self.max_calls = family.max_calls if max_calls is None else max_calls
        self._family, self._scenario, self._results = family, scenario, results
        self._lock = threading.Lock()

    def __call__(self, call: ToolCall) -> str:
        """The observation.

        Raises:
            ToolError: as the tool does, or no calls are left.
        """
        with self._lock:
            self.num_calls += 1
            is_refused = self.num_calls > self.max_calls
        if is_refused:
            raise ToolError(f"no calls left: at most {self.max_calls}; answer now")
        if self._results is None:
            return self._family.call_tool(self._scenario, call)
        return self._results.call(self._family, self._scenario, call)


def _ask(family: Family, scenario: Scenario, call: ToolCall) -> _Entry:
    try:
        text, is_error = family.call_tool(scenario, call), False
    except ToolError as error:
        text, is_error = str(error), True
    return _Entry(call_tool=family.call_tool, facts=scenario.facts, text=text, is_error=is_error)


def _same(entry: _Entry, scenario: Scenario) -> bool:
    return entry.facts is scenario.facts or entry.facts == scenario.facts


def _spell(call: ToolCall) -> str | None:
    """Name and arguments as one text for each; None: not to be kept.

    It is JSON with every character as it is (escapes write two halves of a pair like the whole); the order of
    keys counts, as it does in plans. What is no JSON value (other keys than text, tuples) is not kept.
    """
    try:
        words = json.dumps([call.name, call.arguments], ensure_ascii=False, allow_nan=False)
        is_json = repr(json.loads(words)) == repr([call.name, call.arguments])
    except (TypeError, ValueError, RecursionError):
        return None
    return words if is_json and len(words) <= MAX_KEY_CHARS else None
