"""Autotuning: select among variants by measuring them.

`Kernel.tune` tunes parameters declared with `vk.tune(...)`, `problem.tune` any other set of candidates; `records`
stores the results on disk.
"""
