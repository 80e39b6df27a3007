"""Analyses that passes use, and passes that only check a module. Neither changes the IR."""
