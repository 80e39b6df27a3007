"""Comparison of results with references: error bounds and tolerances."""
