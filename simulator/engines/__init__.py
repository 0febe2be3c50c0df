"""Engines: sampled completions for token prompts, behind one asynchronous protocol.

A folder per kind of engine; scripted ones are files here.
"""
