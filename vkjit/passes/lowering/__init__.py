"""Lowering passes: replace operations that back ends can't emit by operations that they can."""
