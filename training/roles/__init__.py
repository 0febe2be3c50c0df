"""SFT of single roles on TRL's trainer, resumable to the bit.

Belongs here: the trainer, its loss with shared prompts, validation.
Not here: RL (training.rl).
"""
