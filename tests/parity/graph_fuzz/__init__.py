"""Random graphs of tensor operations, forward and backward, against PyTorch."""
