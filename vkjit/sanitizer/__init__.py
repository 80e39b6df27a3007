"""The host side of the sanitizer: launches of sanitized kernels, with shadow memory, redzones and reports.

The instrumentation of the kernels is in `vkjit.passes.sanitizer`.
"""
