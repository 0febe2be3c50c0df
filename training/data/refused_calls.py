"""Refused calls in demonstrations, so that a model has seen how to go on after its own slip.

A call is first made with a wrong name, as a small model makes it, the tool refuses it, and the right call
follows. The wrong turn stands in the context and is not learnt from.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from scenarios.base import Step, ToolCall, ToolError


def refuse_one_call(
    steps: Sequence[Step], call_tool: Callable[[ToolCall], str], rng: random.Random
) -> tuple[Step, ...]:
    """The steps with one of their calls refused first; as they are where no wrong name is refused.

    Wrong names are made of those that the steps' calls list: one of another call, two that are mixed, or one
    that is repeated.
    """
    known = list(dict.fromkeys(name for step in steps for _, names in _name_lists(step) for name in names))
    order = list(range(len(steps)))
    rng.shuffle(order)
    for at in order:
        wrong = list(_misname(steps[at], known))
        rng.shuffle(wrong)
        for call in wrong:
            if _is_refused(call, call_tool):
                slip = Step(text=steps[at].text, call=call, is_slip=True)
                return (*steps[:at], slip, replace(steps[at], text=""), *steps[at + 1 :])
    return tuple(steps)


def _name_lists(step: Step) -> Iterator[tuple[str, list[str]]]:
    for key, value in ({} if step.call is None else step.call.arguments).items():
        if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
            yield key, value


def _misname(step: Step, known: Sequence[str]) -> Iterator[ToolCall]:
    for key, names in _name_lists(step):
        first, _, rest = names[-1].partition(" ")
        mixed = [f"{first} {other.partition(' ')[2]}" for other in known if rest and " " in other]
        for wrong in ([*names, names[-1]], *([*names[:-1], other] for other in (*known, *mixed))):
            assert step.call is not None
            yield replace(step.call, arguments={**step.call.arguments, key: wrong})


def _is_refused(call: ToolCall, call_tool: Callable[[ToolCall], str]) -> bool:
    try:
        call_tool(call)
    except ToolError:
        return True
    return False
