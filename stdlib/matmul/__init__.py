"""Matrix products: kernels per class of device, split-K, and tuning.

`dispatch` is the entry point. `by_rule` chooses a kernel by device and shape, `variants` lists all candidates for `tuning`, and
the `*_plan` modules choose tile sizes. The kernels are in the other modules.
"""
