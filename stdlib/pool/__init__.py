"""Pooling kernels."""
