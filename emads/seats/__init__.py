"""Players of single seats: who they are in words, scripts, persons, and how endpoints are asked and paid.

Not here: the team that they make (emads/team.py), the protocol of endpoints (simulator/engines/openai).
"""

SCRIPTED = "scripted"
EMBEDDED = "transformers"  # the engine in this process
STAGES = ("base", "sft", "grpo", "marl")  # of a run, in their order
STOPPED = 8  # exit status: an endpoint failed, or the cost limit is reached; the same command goes on
