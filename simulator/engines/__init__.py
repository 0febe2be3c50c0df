"""Engines turn token prompts into sampled completions behind one asynchronous protocol."""
