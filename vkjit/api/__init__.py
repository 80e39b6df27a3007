"""User-facing functions around kernels and devices, exported as `vk.*`.

Streams and events, captured graphs, device memory, profiling, inspection of compiled kernels, compile-only checks, and
the report of the environment.
"""
