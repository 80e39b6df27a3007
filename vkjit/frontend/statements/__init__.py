"""Lowering of statements: assignment, branches and loops."""
