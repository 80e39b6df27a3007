"""Formulas of the mathematical functions, by theme, for f32 and f64 alike; `_gen_polynomials` holds their numbers."""
