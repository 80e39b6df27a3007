"""Compute pipelines, their on-disk cache and driver statistics."""
