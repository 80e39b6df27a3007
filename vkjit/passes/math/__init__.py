"""Expansions of mathematical functions for f32 and f64, for the pass `lower_math`.

Each function takes a `Formula` and terms, emits code of elementary operations, and returns the result as a term (see
`formulas`). `_gen_polynomials` has the coefficients of the polynomials. Polynomials approximate a function on a small
interval; the modules describe how arguments are reduced to it.
"""
