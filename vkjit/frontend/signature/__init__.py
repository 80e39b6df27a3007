"""Kernel signatures: annotations, dimension strings, argument types."""
