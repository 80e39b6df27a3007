"""Row-wise kernels: reductions, softmax, normalization, copies."""
