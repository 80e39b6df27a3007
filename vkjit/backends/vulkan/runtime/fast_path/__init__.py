"""Launch fast path: generated Python and machine code for repeated launches."""
