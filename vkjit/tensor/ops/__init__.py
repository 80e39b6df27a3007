"""Tensor operations on arrays and indices; those of neural networks are in `vkjit.tensor.nn`."""
