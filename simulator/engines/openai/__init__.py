"""Any OpenAI-compatible endpoint as a chat model.

Belongs here: the client, its limits and strict replies.
Not here: who asks it (agents, teacher).
"""
