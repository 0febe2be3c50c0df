"""A team behind one endpoint: OpenAI's chat completions, MCP and A2A, with health and metrics.

Belongs here: protocols, the queue in front of the table, tasks that outlive a restart.
Not here: the checks of who may call (serving/guard.py), and what a ruling is worth (simulator/governance).
"""
