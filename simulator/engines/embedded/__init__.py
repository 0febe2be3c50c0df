"""Engine for Hugging Face models in this process, with continuous batching.

Belongs here: the embedded engine and its cache.
Not here: sampling rules shared by engines (simulator.engines).
"""
