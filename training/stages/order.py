"""The order of training stages: whose weights each one starts from, and which an evaluation reads."""

from evaluation.scoring.scores import FEEDBACK_STAGES
from training.models.weights import BASE

SOURCE = {"sft": BASE, "sft_more": "sft", "grpo": "sft", "marl": "grpo"}  # stage -> the stage before it
EVALUATED_AFTER = {"untrained": BASE, "sft": "sft", "sft_more": "sft_more", "grpo": "grpo", "marl": "marl"}
EVALUATED_AFTER |= {stage: stage for stage in FEEDBACK_STAGES}
