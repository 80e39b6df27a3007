"""Devices: what they can do, their memory, their queue, and running compiled kernels on them.

Enters: `KernelArtifact`s and bytes. Leaves: results, and errors that kernels reported. Holds: nothing here knows the
IR; importing this package loads no driver. `select` finds and opens devices, `interface` says what every device is.
"""
