"""Formulas over IR values: the expression builder that expansions are written in."""
