"""Matrix products: kernels for each device class, split-K, and tuning.

`dispatch.multiply` is the entry point for `matmul` of tensors. `by_rule` chooses a kernel by device and shape,
`variants` lists all candidates for `tuning`, and the `*_plan` modules choose tile sizes. The other modules hold the
kernels: for GPUs `cooperative`, `vec4`, `shared_tiles` and `linear`, for devices of class "cpu" `registers` and
`cpu_panels`, for both `tiles`.

Unless stated otherwise, the kernels compute batched products c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j]. Arrays
have three axes, a (G, M, K), b (G, K, N) and c (G, M, N), and any strides, so that transposed views and broadcast
batches need no copy.
"""
