"""Gather, scatter, embedding, compaction and bincount kernels."""
