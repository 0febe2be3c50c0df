"""Rollout hosts: where a joint step's episodes are played, in the learner's process or in others.

`host.py` plays, `process_host.py` and `ray_host.py` put a host into another process, `pool.py` deals out
the work.
"""
