"""Fuzz operations against PyTorch with arbitrary memory layouts and repeated calls."""
