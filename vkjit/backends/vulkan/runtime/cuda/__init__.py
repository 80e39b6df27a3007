"""Interoperability with CUDA: shared memory and cross-API ordering."""
