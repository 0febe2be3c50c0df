"""Engines on vLLM, in this process or behind its server.

Belongs here: everything that imports vLLM or calls its server.
Not here: other endpoints (openai).
"""
