"""Edits of a kernel's source: mutations, repairs, and the kernels compiled from edited source."""
