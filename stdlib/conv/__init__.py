"""Convolutions: forward, input gradient (dgrad) and weight gradient (wgrad).

`dispatch` is the entry point. The `*_plan` modules choose kernels and tile sizes for a device and launch them;
`geometry` describes the shape of a convolution; the other modules hold the kernels. For GPUs these are `shared_patch`
and `implicit_gemm`, for devices of class "cpu" `direct`, `cpu_rows`, `wgrad_direct` and `wgrad_cpu`. `tiles` is an
alternative as tile kernels.

Names in all kernels: D, H, W are the input's extents along depth, height and width, and d, h, w its indices; d, h, w
are also suffixes for the three axes. O, P, Q are the output's extents, and o, p, q its indices; T, R, S are the
filters' extents, and t, r, s their indices. A *tap* is one (t, r, s), at which a filter has one weight per channel.
`filters` (output channels) and `channels` (input channels) are counts per group. The weights are w, x is the input, y
the output; gx, gw and gy are their gradients.
"""
