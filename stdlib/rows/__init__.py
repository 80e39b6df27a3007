"""Row-wise kernels: reductions, softmax, normalization, copies. A row is a slice of an array along one axis."""
