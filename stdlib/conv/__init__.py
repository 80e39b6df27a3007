"""Convolutions: forward, input gradient (dgrad) and weight gradient (wgrad).

`dispatch` is the entry point. The `*_plan` modules choose kernels and tile sizes for a device and launch them; the others hold
the kernels.
"""
