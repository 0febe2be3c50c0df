"""A model at the table behind the real protocol: experts answer the requests that a server gets."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from teacher_server import say

from scenarios.team import PlayableCase
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import SeededPolicy
from simulator.tool_calls import CLOSE, OPEN

Body = dict[str, Any]


def answer_as_experts(cases: Sequence[PlayableCase]) -> Callable[[Body], Body]:
    """A model that plays every seat of these cases; its calls are native ones."""
    experts = oracle_team(cases, report_habit="measured", funding_habit="exact")

    def answer(body: Body) -> Body:
        transcript = write_transcript(body)
        return _speak(experts, transcript)

    return answer


def write_transcript(body: Body) -> str:
    """What the request says, as text in its order."""
    lines = []
    for message in body["messages"]:
        lines.append(message["content"] or "")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            arguments = json.loads(function["arguments"])
            written = json.dumps({"name": function["name"], "arguments": arguments})
            lines[-1] += f"{OPEN}\n{written}\n{CLOSE}"
    return "\n".join(lines)


def _speak(experts: dict[str, SeededPolicy], transcript: str) -> Body:
    for policy in experts.values():
        try:
            text = policy(transcript, random.Random(0))
        except ValueError:  # another seat's brief
            continue
        words, found, rest = text.partition(OPEN)
        if not found:
            return say(words)
        call = json.loads(rest.replace(CLOSE, ""))
        return say(words) | {
            "tool_calls": [
                {
                    "id": "c0",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
            ]
        }
    raise AssertionError(f"no expert knows this: {transcript[-200:]}")
