"""Training: data, SFT, GRPO, joint multi-agent RL, learner, runs and checkpoints.

Episodes come in and weights go out; verbs and what they print are in emads.
"""
