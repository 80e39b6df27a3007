"""Formulas of the arithmetic that SPIR-V leaves out or leaves undefined, by theme."""
