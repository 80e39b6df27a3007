"""Compilation of kernels to artifacts: the compilation driver, the disk cache, and fingerprints for its keys."""
