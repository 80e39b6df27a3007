"""Kernels and launches: the `@kernel` decorator, argument binding, launch plans, the launch cache and the fast path."""
