"""Code generation shared by backends: the layout of the argument block, and which parameters a kernel uses."""
