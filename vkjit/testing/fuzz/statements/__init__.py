"""Generators of the statements of fuzzed programs, by kind of operation."""
