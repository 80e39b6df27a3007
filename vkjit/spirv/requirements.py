"""Capabilities and extensions that a module must declare, derived from what it uses.

Computes the minimal set that the grammar requires from the uses (instructions and enumerants), explicitly required
capabilities and the SPIR-V version. Rules that the grammar can't express, because they depend on operand types, are in
`typed_capability`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InternalError
from ._gen_grammar import ENUMERANTS, INSTRUCTIONS, UNVERSIONED
from .words import Use

__all__ = ["implied", "resolve", "typed_capability"]

_VENDOR_SUFFIXES = ("NV", "AMD", "EXT", "KHR", "GOOGLE")
_DOT_OPS = frozenset({"OpSDot", "OpUDot", "OpSUDot", "OpSDotAccSat", "OpUDotAccSat", "OpSUDotAccSat"})


def implied(capabilities: Iterable[str]) -> set[str]:
    """Return `capabilities` and all capabilities that they imply."""
    table = ENUMERANTS["Capability"]
    closure: set[str] = set()
    pending = list(capabilities)
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending += table[name][2].split() if name in table else []
    return closure


def _row(use: Use) -> tuple[int, str, str, str, int]:
    kind, name = use
    return INSTRUCTIONS[name] if kind == "Op" else ENUMERANTS[kind][name]


def _preferred(alternatives: list[str]) -> str:
    """Choose one of several sufficient capabilities: core capabilities before those of extensions."""
    core = [name for name in alternatives if not name.endswith(_VENDOR_SUFFIXES)]
    return (core or alternatives)[0]


def resolve(uses: set[Use], asked: Iterable[str], version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (capabilities, extensions) in a stable order, Shader first.

    `version` is the module's header word (0x00010500 for 1.5). Raises InternalError if something needs a later version.
    """
    declared = {"Shader", *asked}
    for name in declared:
        if name not in ENUMERANTS["Capability"]:
            raise InternalError(f"no capability is called {name!r} in the SPIR-V grammar")
    alternatives: list[list[str]] = []
    for use in sorted(uses):
        sufficient = _row(use)[2].split()
        if len(sufficient) == 1:
            declared.add(sufficient[0])
        elif sufficient:
            alternatives.append(sufficient)
    closure = implied(declared)
    for sufficient in alternatives:
        if not closure.intersection(sufficient):
            declared.add(_preferred(sufficient))
            closure = implied(declared)
    table = ENUMERANTS["Capability"]
    ordered = tuple(sorted(declared, key=lambda name: table[name][0] if name != "Shader" else -1))
    needed = sorted(uses) + [("Capability", name) for name in ordered]
    return ordered, _extensions(needed, version)


def _extensions(uses: list[Use], version: int) -> tuple[str, ...]:
    selected: set[str] = set()
    for use in uses:
        _, _, _, extensions, since = _row(use)
        if since <= version:
            continue
        choices = extensions.split()
        if choices:
            if not selected.intersection(choices):
                selected.add(choices[0])
        elif since != UNVERSIONED:
            raise InternalError(f"{use[1]} needs SPIR-V {_dotted(since)}; the module is for {_dotted(version)}")
    return tuple(sorted(selected))


def _dotted(version: int) -> str:
    return f"{version >> 16}.{version >> 8 & 255}"


def typed_capability(opname: str, scalar: str, bits: int, lanes: int) -> str | None:
    """Return the capability that an instruction needs for its operand type; None if the grammar's rules suffice.

    `scalar` is "int", "float" or "bfloat", of `bits` bits, in a vector of `lanes` components (1 for a scalar).
    """
    if opname == "OpAtomicFAddEXT" or opname in ("OpAtomicFMinEXT", "OpAtomicFMaxEXT"):
        if lanes > 1:
            return "AtomicFloat16VectorNV"
        return f"AtomicFloat{bits}{'Add' if opname == 'OpAtomicFAddEXT' else 'MinMax'}EXT"
    if opname.startswith("OpAtomic"):
        return "Int64Atomics" if scalar == "int" and bits == 64 else None
    if opname in _DOT_OPS:
        if lanes == 1:
            return "DotProductInput4x8BitPacked"
        return "DotProductInput4x8Bit" if (bits, lanes) == (8, 4) else "DotProductInputAll"
    if opname == "OpDot" and scalar == "bfloat":
        return "BFloat16DotProductKHR"
    return None
