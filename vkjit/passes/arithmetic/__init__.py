"""Expansions of arithmetic that SPIR-V lacks or leaves undefined."""
