"""Optimizer steps: the update rules, and the kernels that apply them to parameters."""
