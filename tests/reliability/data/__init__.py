"""Data folders whose generation is killed and whose rows are corrupted.

Every corrupt row must be named and no sound row be lost.
"""
