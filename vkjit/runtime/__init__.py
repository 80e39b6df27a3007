"""The runtime: the device interface, buffers and arrays, and the execution of compiled kernels.

The runtime doesn't depend on the IR, and importing this package loads no driver. `device` defines the interface of all
devices; `backends.selection` finds and opens them.
"""
