"""Episodes in, weights out: data, SFT, GRPO, joint multi-agent RL, credit and checkpoints."""
