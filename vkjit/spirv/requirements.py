"""What a module must declare: capabilities and extensions, derived from what it uses.

Enters: uses (instructions and enumerants), capabilities asked for, the SPIR-V version. Leaves: the least set of
capabilities and extensions that the grammar demands. Holds: nothing.

Rules that the grammar can't state (they depend on operand types) live in `typed_capability`.
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
    """`capabilities` and all that they imply."""
    table = ENUMERANTS["Capability"]
    found: set[str] = set()
    pending = list(capabilities)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += table[name][2].split() if name in table else []
    return found


def _row(use: Use) -> tuple[int, str, str, str, int]:
    kind, name = use
    return INSTRUCTIONS[name] if kind == "Op" else ENUMERANTS[kind][name]


def _preferred(alternatives: list[str]) -> str:
    """The choice among capabilities any of which is enough: the core one before those of extensions."""
    core = [name for name in alternatives if not name.endswith(_VENDOR_SUFFIXES)]
    return (core or alternatives)[0]


def resolve(uses: set[Use], asked: Iterable[str], version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(capabilities, extensions) in a stable order, Shader first.

    `version` is the module's header word (0x00010500 for 1.5). InternalError when something needs a later version.
    """
    declared = {"Shader", *asked}
    for name in declared:
        if name not in ENUMERANTS["Capability"]:
            raise InternalError(f"no capability is called {name!r} in the SPIR-V grammar")
    alternatives: list[list[str]] = []
    for use in sorted(uses):
        enough = _row(use)[2].split()
        if len(enough) == 1:
            declared.add(enough[0])
        elif enough:
            alternatives.append(enough)
    closure = implied(declared)
    for enough in alternatives:
        if not closure.intersection(enough):
            declared.add(_preferred(enough))
            closure = implied(declared)
    table = ENUMERANTS["Capability"]
    ordered = tuple(sorted(declared, key=lambda name: table[name][0] if name != "Shader" else -1))
    needed = sorted(uses) + [("Capability", name) for name in ordered]
    return ordered, _extensions(needed, version)


def _extensions(uses: list[Use], version: int) -> tuple[str, ...]:
    found: set[str] = set()
    for use in uses:
        _, _, _, extensions, since = _row(use)
        if since <= version:
            continue
        choices = extensions.split()
        if choices:
            if not found.intersection(choices):
                found.add(choices[0])
        elif since != UNVERSIONED:
            raise InternalError(f"{use[1]} needs SPIR-V {_dotted(since)}; the module is for {_dotted(version)}")
    return tuple(sorted(found))


def _dotted(version: int) -> str:
    return f"{version >> 16}.{version >> 8 & 255}"


def typed_capability(opname: str, scalar: str, bits: int, lanes: int) -> str | None:
    """The capability that an instruction needs for the type it works on; None when the grammar says all.

    `scalar` is "int", "float" or "bfloat", of `bits` bits, in a vector of `lanes` (1 for a scalar).
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
