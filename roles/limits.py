"""Limits of an agent's work that its prompt states in full form, and the sentences that state them.

The short form states none: it is for models that are trained on the task.
"""

from roles.base import MAX_ANSWER_CHARS

MAX_CALLS_PER_TURN = 8
MAX_CALL_CHARS = 20_000  # of one call: refused before it is parsed
MAX_OBSERVATION_CHARS = 2_000  # of what a call returns
MAX_SEAT_CALLS = 60  # of a seat at the table, in one episode
MAX_LONE_CALLS = 40  # of an agent that decides alone
SURE_TURNS = 10  # of one message: no shipped setting allows fewer

ANSWER_RULES = (
    "The object that answers ends your message and has no keys but those named, none of them twice; a "
    f"message has at most {MAX_ANSWER_CHARS:,} characters."
)
TOOL_RULES = (
    f"A turn ends with calls, at most {MAX_CALLS_PER_TURN} of at most {MAX_CALL_CHARS:,} characters each, or "
    f"with the answer. You read the first {MAX_OBSERVATION_CHARS:,} characters of a result. A run may stop "
    f"you after {SURE_TURNS} turns on one message, or at a call that is refused."
)
