"""Import all modules that register lowerings.

This fills the registries of `context` (syntax nodes), `intrinsics` (calls), `values.attributes` (attributes) and
`values.scopes` (methods of workgroups and subgroups). `kernel` imports this module.
"""

from __future__ import annotations

# ruff: noqa: F401  # imported to register their lowerings
from .calls import (
    assumptions,
    atomics,
    calls,
    casts,
    collectives,
    device_functions,
    ids,
    lazy_collectives,
    local_functions,
    mappings,
    math,
    memory,
    numpy_functions,
    partial,
    printing,
    random,
    scans,
    vectors as vector_calls,
)
from .expressions import expressions, subscripts
from .statements import loops, ranges, statements
from .tiles import matrices, reductions, shapes, tiles
from .values import arrays, members, packed, scopes, struct_arrays, structs, vectors
