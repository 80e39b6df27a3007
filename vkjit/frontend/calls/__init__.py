"""Lowering of calls: intrinsics, device functions, and builtins."""
