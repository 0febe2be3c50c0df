"""Comparison of several runs: ablation cells and seeds."""
