"""vLLM in this process or behind its server.

Belongs here: everything that imports vLLM or speaks to its server.
Not here: other endpoints (openai).
"""
