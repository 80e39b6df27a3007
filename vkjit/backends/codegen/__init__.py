"""Code generation shared by back ends: the layout of the argument block and the use of parameters."""
