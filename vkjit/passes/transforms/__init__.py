"""IR-to-IR transforms: optimizations and instrumentation."""
