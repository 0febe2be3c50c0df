"""The order of training stages: whose weights each one starts from, and which an evaluation reads."""

from evaluation.scoring.outcomes import FEEDBACK_STAGES
from training.models.weights import BASE

SOURCE = {  # stage -> the stage before it
    "sft": BASE,
    "sft_more": "sft",
    "sft_own": "sft",
    "grpo": "sft",
    "marl": "grpo",
    "sft_instead": "grpo",
    "grpo_instead": "grpo",
    "sft_best_habit": "grpo",
    "single_sft": BASE,
    "single_grpo": "single_sft",
}
EVALUATED_AFTER = {
    "untrained": BASE,
    "sft": "sft",
    "sft_more": "sft_more",
    "sft_own": "sft_own",
    "grpo": "grpo",
    "marl": "marl",
}
EVALUATED_AFTER |= {stage: stage for stage in FEEDBACK_STAGES}
ROLE_CONTROLS = ("sft_more", "sft_own")  # of GRPO: demonstrations again; own right answers beside them
TEAM_CONTROLS = ("sft_instead", "grpo_instead", "sft_best_habit")  # of joint training, every role on its own
GOVERNED = "_governed"  # ends the name of scores that a stage's team earned in governed episodes
GOVERNED_STAGES = ("grpo", "marl")  # whose teams play them, where joint training does
SINGLE_STAGES = ("single_sft", "single_grpo")  # of the agent that plays in place of a team
