"""Neural-network operations on tensors: convolutions, pooling, normalization, attention, losses, ...

Public functions check their operands and call operations (`@operation`), which launch kernels of `vkjit.stdlib` and are
recorded by autograd. The gradient rules are in `vkjit.tensor.derivatives`; for them some modules also define gradient
functions that aren't operations, so autograd doesn't record their calls. `vkjit.nn.functional` exports the public
functions.
"""
