"""Lowering passes: replace operations that targets lack by operations that they have."""
