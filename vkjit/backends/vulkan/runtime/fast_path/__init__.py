"""Launch fast path: the launcher in Python, and machine code for whole calls."""
