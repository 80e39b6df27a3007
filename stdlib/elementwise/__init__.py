"""Elementwise kernels, the functions they apply, and transposing copies."""
