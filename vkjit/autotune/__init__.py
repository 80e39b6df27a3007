"""Autotuning: select the fastest of several variants by measuring them.

`kernels` implements `Kernel.tune`, for parameters declared with `vk.tune(...)`. It builds on `problem.tune`, which
measures any set of candidates. `storage` keeps the results on disk.
"""
