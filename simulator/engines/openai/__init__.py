"""Client for OpenAI-compatible endpoints.

Belongs here: requests, limits, strict reading of replies.
Not here: prompts (agents, training.data.teacher).
"""
