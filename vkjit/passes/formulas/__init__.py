"""Formulas over IR values: the expression builder in which lowering passes write the expansions of operations."""
