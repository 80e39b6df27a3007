"""Lowering of calls: intrinsics (functions and methods of the kernel language), device functions, Python's builtins."""
