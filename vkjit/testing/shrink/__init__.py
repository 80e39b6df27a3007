"""Shrinking of failing cases to smaller ones that fail in the same way."""
