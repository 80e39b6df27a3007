"""Lowering of tiles and cooperative matrices."""
