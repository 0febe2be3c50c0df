"""Run folders: config, metrics, checkpoints, workers, injected faults.

Belongs here: everything that resuming a run needs.
Not here: training itself (stages).
"""
