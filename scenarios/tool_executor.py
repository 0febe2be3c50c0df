"""Tool calls of one episode: a budget of calls, and results shared between rollouts.

Tools are pure functions of a scenario's facts, so what one rollout has asked is known to the next.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from scenarios.base import Family, Scenario, ToolCall, ToolError

# the tool and the facts that a result depends on, and the result
_Entry = tuple[Callable[[Scenario, ToolCall], str], Mapping[str, Any], str | ToolError]

MAX_ENTRIES = 4096
MAX_KEY_CHARS = 2000  # longer arguments are not worth keeping


class ResultCache:
    """The latest `max_entries` results of tool calls, least recently used ones forgotten first. Thread-safe.

    A result is used again only for the same tool on equal facts, whatever the scenario's key says.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, got {max_entries}")
        self.num_hits = self.num_misses = 0
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # by scenario and call
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
        with self._lock:
            tool, facts, result = self._entries.get(key) or (None, None, "")
            is_known = tool is family.call_tool and (facts is scenario.facts or facts == scenario.facts)
            if is_known:
                self._entries.move_to_end(key)
            self.num_hits += is_known
            self.num_misses += not is_known
        if not is_known:
            try:
                result = family.call_tool(scenario, call)
            except ToolError as error:
                result = error
            with self._lock:
                self._entries[key] = family.call_tool, scenario.facts, result
                self._entries.move_to_end(key)
                while len(self._entries) > self._max_entries:
                    self._entries.popitem(last=False)
        if isinstance(result, ToolError):
            raise ToolError(str(result))
        return result


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
