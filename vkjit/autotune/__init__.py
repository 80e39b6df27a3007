"""Choosing among variants by measuring them: `Kernel.tune` for what a kernel leaves to `vk.tune(...)`, `problem.tune` for
anything else; `records` keeps what was found.
"""
