"""Scaled dot-product attention: forward and backward tile kernels, and `dispatch`, which launches them."""
