"""Expansions of arithmetic that SPIR-V lacks or leaves undefined, for the pass `lower_arithmetic`.

The modules define rules (see `formulas.expansion`), mostly one function per operation, with the operation's name. A
rule gets a `Formula` and the operands as terms, emits simpler operations, and returns the result. `formulas.expansion`
splits vectors, so rules get only scalars.
"""
