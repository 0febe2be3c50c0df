"""A role alone, a team of one seat: its episodes on its own family, rewards, alarms and curriculum.

Belongs here: what only GRPO of a role plays and measures.
Not here: the loop and the estimators.
"""
