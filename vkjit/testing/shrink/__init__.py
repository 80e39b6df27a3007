"""Shrinking of failing cases."""
