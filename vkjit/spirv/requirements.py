"""Capabilities and extensions that a SPIR-V module must declare, derived from what it uses.

`resolve` computes them from the module's uses (the emitted instructions and enumerants), from explicitly required
capabilities, and from the SPIR-V version, according to the grammar tables. `typed_capability` has the rules that depend
on operand types, which the grammar can't express.
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
    """Return `capabilities` together with all capabilities that they imply, directly or indirectly."""
    table = ENUMERANTS["Capability"]
    closure: set[str] = set()
    pending = list(capabilities)
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending += table[name][2].split() if name in table else []  # column 2: the implied capabilities
    return closure


def _row(use: Use) -> tuple[int, str, str, str, int]:
    """Return the grammar's row of an instruction or enumerant.

    Its items are: number, operand kinds, capabilities of which one suffices, extensions of which one suffices, and the
    first SPIR-V version that doesn't need an extension.
    """
    kind, name = use
    return INSTRUCTIONS[name] if kind == "Op" else ENUMERANTS[kind][name]


def _preferred(alternatives: list[str]) -> str:
    """Choose one of several sufficient capabilities: the first one that isn't from an extension, else the first one."""
    core = [name for name in alternatives if not name.endswith(_VENDOR_SUFFIXES)]
    return (core or alternatives)[0]


def resolve(uses: set[Use], required: Iterable[str], version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (capabilities, extensions) in a stable order, with the capability Shader first.

    `required` are the explicitly required capabilities. `version` is a word as in the header (0x00010500 for 1.5).
    Raises InternalError if a use requires a later version.
    """
    declared = {"Shader", *required}
    for name in declared:
        if name not in ENUMERANTS["Capability"]:
            raise InternalError(f"no capability is called {name!r} in the SPIR-V grammar")
    alternatives: list[list[str]] = []  # uses with several sufficient capabilities, to be decided last
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
    """Return the sorted extensions that the uses need in a module of SPIR-V version `version` (a header word)."""
    selected: set[str] = set()
    for use in uses:
        _, _, _, extensions, since = _row(use)
        if since <= version:
            continue
        sufficient = extensions.split()
        if sufficient:
            if not selected.intersection(sufficient):
                selected.add(sufficient[0])
        elif since != UNVERSIONED:
            raise InternalError(f"{use[1]} needs SPIR-V {_dotted(since)}; the module is for {_dotted(version)}")
    return tuple(sorted(selected))


def _dotted(version: int) -> str:
    """Return the text of a version, such as "1.5" for the header word 0x00010500."""
    return f"{version >> 16}.{version >> 8 & 255}"


def typed_capability(opname: str, scalar: str, bits: int, lanes: int) -> str | None:
    """Return the capability that an instruction needs for its operand type; None if the grammar's rules suffice.

    The operand type has `lanes` components (1 for a scalar). `scalar` is the kind of a component, "int", "float" or
    "bfloat", and `bits` its width.
    """
    if opname in ("OpAtomicFAddEXT", "OpAtomicFMinEXT", "OpAtomicFMaxEXT"):
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
