"""The order of training stages: whose weights each one starts from, and which an evaluation reads."""

from training.models.weights import BASE

SOURCE = {"sft": BASE, "sft_more": "sft", "grpo": "sft", "marl": "grpo"}  # stage -> the stage before it
EVALUATED_AFTER = {"untrained": BASE, "sft": "sft", "sft_more": "sft_more", "grpo": "grpo", "marl": "marl"}
