"""Expansions of mathematical functions for f32 and f64; `_gen_polynomials` holds their coefficients."""
