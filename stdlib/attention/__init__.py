"""Scaled dot-product attention: forward and backward tile kernels, and kernel selection."""
