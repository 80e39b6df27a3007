"""IR-to-IR transforms: optimizations and instrumentation.

`passes.pipeline` runs them in the order that it defines. The forms of the IR that they take (high, normal, primitive)
are defined in `ir.verify`.
"""
