"""Interoperability with CUDA: shared memory, cross-API ordering and the GPU's clock."""
