"""Comparison of a kernel's outputs with expected values: error bounds, tolerances, unordered rows."""
