"""Layers and losses, one family per file."""
