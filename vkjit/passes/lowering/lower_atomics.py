"""Lower float atomics that the device lacks to compare-and-swap loops on the element's bits.

Takes a module with linear arrays. Afterwards, the only float atomics are exchanges, and `add` and `sub` if the device
supports them in the array's memory space::

    %old = atomic %x, %i, %v {op = "max"}   ->   %bits = linear %x : array<u32, ...>
                                                 %first = atomic_load %bits, %i
                                                 loop %first (%seen) {
                                                   %now = atomic_cas %bits, %i, %seen, bits of max(%seen, %v)
                                                   if %now == %seen { break %now } else { yield }
                                                   continue %now }

As these loops are part of the IR, `loop_guard` counts them for drivers that stop long loops. Elements of 8 and 16 bits
share a 32-bit word with adjacent elements; the back end emits the loops for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import op_name
from vkjit.ir.rewrite import rewrite_region
from vkjit.ir.types import Array, Scalar

from ..formulas.formats import FORMATS
from ..formulas.formula import Formula

__all__ = ["LowerAtomics"]


@dataclass(frozen=True, slots=True)
class LowerAtomics:
    """Lower float atomics that the device lacks. `features` are the device's features (`DeviceCaps.features`)."""

    name: ClassVar[str] = "lower_atomics"
    features: frozenset[str]

    def run(self, module: Module) -> Module:
        only_added = _only_added(module.kernel.body)

        def rule(op: Op, builder: Builder) -> list[Value] | None:
            array = op.operands[0].type if op.name == "atomic" else None
            if not isinstance(array, Array) or not self.must_lower(op, array, only_added):
                return None
            return [_compare_and_swap(op, array, builder)]

        rewrite_region(module.kernel.body, rule)
        return module

    def must_lower(self, op: Op, array: Array, only_added: set[Value]) -> bool:
        """True if this atomic must be lowered.

        `only_added` are the arrays whose only atomics are additions. Among shared arrays, only these can use the
        device's additions.
        """
        dtype = array.dtype
        if not isinstance(array.element, Scalar) or not dtype.is_float or dtype.bits < 32 or not array.linear:
            return False
        if op.attrs["op"] == "exchange":  # it only moves bits
            return False
        if op.attrs["op"] not in ("add", "sub"):
            return True
        if array.space == "shared":
            is_native = f"float{dtype.bits}_shared_atomic_add" in self.features
            return not (is_native and op.attrs["op"] == "add" and _root(op.operands[0]) in only_added)
        return f"float{dtype.bits}_atomic_add" not in self.features


def _root(array: Value) -> Value:
    """Return the parameter or allocation that an array value views."""
    while array.op is not None and array.op.name == "linear":
        array = array.op.operands[0]
    return array


def _only_added(body: Region) -> set[Value]:
    """Return the arrays whose only atomics are additions."""
    added: set[Value] = set()
    others: set[Value] = set()
    for op in body.walk():
        if op.name.startswith("atomic"):
            is_addition = op.name == "atomic" and op.attrs["op"] == "add"
            (added if is_addition else others).add(_root(op.operands[0]))
    return added - others


def _compare_and_swap(op: Op, array: Array, builder: Builder) -> Value:
    """Emit the compare-and-swap loop and return the old value."""
    target, offset, value = op.operands
    f = Formula(builder)
    order, scope = op.attrs["order"], op.attrs["scope"]
    bits_type = Scalar(FORMATS[array.dtype].bits)
    view = Array(bits_type, 1, array.space, array.access, array.shape, restrict=array.restrict, linear=True)
    bits = builder.emit("linear", target, type=view)
    first = builder.emit("atomic_load", bits, offset, order="relaxed", scope=scope)
    body = Region([bits_type], ["seen"])
    with builder.at(body):
        seen = f.term(body.args[0])
        changed = f.call(op_name(op.attrs["op"]), seen.as_bits_of(array.dtype), f.term(value)).bits()
        observed = builder.emit("atomic_cas", bits, offset, seen.value, changed.value, order=order, scope=scope)
        done = builder.op("if", f.term(observed).equals(seen).value, types=[], regions=[Region(), Region()])
        with builder.at(done.regions[0]):
            builder.op("break", observed)
        with builder.at(done.regions[1]):
            builder.op("yield")
        builder.op("continue", observed)
    loop = builder.op("loop", first, types=[bits_type], regions=[body])
    return f.term(loop.result).as_bits_of(array.dtype).value
