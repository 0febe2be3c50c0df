"""Training stages of tiny runs that are killed, or whose checkpoints and disks are damaged.

Every check compares with an undisturbed run, bit for bit.
"""
