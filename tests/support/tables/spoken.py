"""Trajectories of known texts and sizes."""

from simulator.records import Trajectory, Turn


def speak(role: str, *said: tuple[str, int]) -> Trajectory:
    """Return a trajectory with one turn per (text, number of tokens).

    The turn samples that many tokens, after a prompt of two tokens.
    """
    turns = tuple(
        Turn(
            context_ids=(1, 2),
            completion_ids=(3,) * size,
            logprobs=(0.0,) * size,
            finish_reason="stop",
            text=text,
            policy_version="",
        )
        for text, size in said
    )
    return Trajectory(
        role=role,
        session="",
        turns=turns,
        num_tool_calls=0,
        num_valid_tool_calls=0,
        ended_by="answer",
        final_text=said[-1][0],
    )
