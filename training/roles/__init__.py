"""SFT and GRPO of single roles on TRL's trainers.

Belongs here: trainers, rollouts, alarms, validation of one role.
Not here: joint training.
"""
