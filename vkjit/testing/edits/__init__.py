"""Edits of a kernel's source, and the kernels compiled from edited source.

Mutations insert a typical bug, for mutation testing (`vkjit.testing.mutate`). Repairs may fix a bug, for the
explanation of failures (`vkjit.testing.explain`).
"""
