"""Lowering of expressions: names, operators, comparisons, subscripts, attributes."""
