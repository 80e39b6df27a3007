"""Lowering of tiles (blocks of elements held by a workgroup or subgroup) and of cooperative matrices to the IR."""
