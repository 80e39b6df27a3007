"""Check in debug kernels that values marked with `assume_uniform` are uniform.

After each `assume_uniform %v` that the whole workgroup reaches, the first invocation stores its value to shared memory.
After a barrier, all invocations load that value, compare it with their own, and report a difference. A second barrier
after the load keeps the check from overwriting the value too early if it runs again. Values that the uniformity
analysis proves uniform aren't checked, nor are assumptions in divergent control flow, where a barrier isn't allowed.
The pass takes the high form of the IR (see `ir.verify`). The interpreter checks all assumptions by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir import types
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.types import Array, Scalar, Vector

from ..analysis.uniformity import Uniformity

__all__ = ["CheckUniformAssumptions"]

MESSAGE = "assume_uniform: the value differs within the workgroup: it is {0} here and {1} in another invocation"


@dataclass(frozen=True, slots=True)
class CheckUniformAssumptions:
    """Insert checks of `assume_uniform` into debug kernels.

    Do nothing if the sanitizer's check `uniform` is on, as it checks the same without barriers.
    """

    name: ClassVar[str] = "check_promises"

    def run(self, module: Module) -> Module:
        if not module.kernel.attrs.get("debug") or "uniform" in module.kernel.attrs.get("sanitize", ()):
            return module
        functions = module.all_functions()
        if not any(op.name == "assume_uniform" for function in functions for op in function.body.walk()):
            return module
        reached = Uniformity.of(module).reached_assumptions()
        for function in functions:
            writer = _Writer(module, function, {op for op, control in reached.items() if control is None})
            writer.region(function.body)
            function.body.ops[:0] = writer.allocations
        return module


@dataclass(slots=True)
class _Writer:
    """The rewrite of one function: inserts checks after the operations in `checked`.

    `allocations` collects the shared arrays that the checks need, for the start of the function.
    """

    module: Module
    function: Function
    checked: set[Op]
    allocations: list[Op] = field(default_factory=list)

    def region(self, region: Region) -> None:
        """Insert the checks into a region and the regions inside."""
        ops, region.ops = region.ops, []
        builder = Builder(region)
        for op in ops:
            region.ops.append(op)
            for inner in op.regions:
                self.region(inner)
            if op in self.checked:
                builder.loc = op.loc
                self.check(builder, op)

    def check(self, builder: Builder, op: Op) -> None:
        """Emit the check of an `assume_uniform`, one for each lane of a vector."""
        value = op.operands[0]
        if isinstance(value.type, Vector):
            scalar = Scalar(value.type.dtype)
            for lane in range(value.type.size):
                self.compare(builder, op, builder.emit("vec_extract", value, lane=lane, type=scalar))
            return
        self.compare(builder, op, value)

    def compare(self, builder: Builder, op: Op, value: Value) -> None:
        """Emit the comparison of a scalar with the first invocation's, and the report of a difference."""
        assert isinstance(value.type, Scalar)
        slot = self.slot(op, value.type)
        zero = builder.index(0)
        with builder.when(self.is_first(builder)):
            builder.op("store", slot, zero, value)
        builder.op("barrier")
        other = builder.emit("load", slot, zero)
        builder.op("barrier")
        differs = builder.emit("ne", _bits(builder, value), _bits(builder, other))
        site = self.module.add_site(ReportSite("uniform", op.loc, MESSAGE))
        builder.op("report", differs, value, other, site=site)

    def slot(self, op: Op, kind: Scalar) -> Value:
        """Allocate a shared array of one element and return it."""
        type_ = Array(kind, 1, space="shared", shape=(1,), contiguous=True)
        self.allocations.append(Op("shared", [], [type_], {"type": type_}, None, op.loc))
        return self.allocations[-1].result

    def is_first(self, builder: Builder) -> Value:
        """Emit the test for the first invocation of the workgroup."""
        first = builder.const(True, types.BOOL)
        for dim, size in enumerate(self.module.kernel.attrs["local_size"]):
            if size > 1:
                matches = builder.emit("eq", builder.emit("local_id", dim=dim), builder.index(0))
                first = builder.emit("and", first, matches)
        return first


_INTEGERS = {16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
"""The unsigned integer type with this number of bits."""


def _bits(builder: Builder, value: Value) -> Value:
    """Return a float's bits as an integer, so that a NaN equals itself; return other values unchanged."""
    assert isinstance(value.type, Scalar)
    if not value.type.dtype.is_float:
        return value
    return builder.emit("bitcast", value, type=Scalar(_INTEGERS[value.type.dtype.bits]))
