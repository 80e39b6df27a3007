"""State that all checks of the sanitizer share while they instrument one kernel: hidden parameters, ids, the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Scalar, Type

from ..formulas.formula import Formula, Term
from .layout import Hidden, SanitizerPlan

__all__ = ["State", "hidden_array"]


def hidden_array(dtype: DType) -> Array:
    """Return the type of a hidden array parameter with elements of `dtype`."""
    return Array(Scalar(dtype), 1, access="inout", restrict=True, linear=True)


@dataclass(slots=True)
class State:
    """The state of the instrumentation of one kernel.

    The checks fill in `plan`. `prologue` collects code that `finish` inserts at the start of the kernel. `one_thread`
    is True if the device runs all invocations of a workgroup in one thread, as SIMD vectors. `params` has the hidden
    parameters created so far. `cached_terms` has values computed in the prologue, by a descriptive key.
    """

    module: Module
    plan: SanitizerPlan
    prologue: Builder
    one_thread: bool = False
    params: dict[Hidden, Value] = field(default_factory=dict)
    cached_terms: dict[str, Term] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Module, checks: tuple[str, ...], *, one_thread: bool) -> State:
        """Return the initial state for a module."""
        kernel = module.kernel
        # by default, a parameter's position is its argument number
        numbers = tuple(kernel.attrs.get("arg_index", range(len(kernel.params))))
        first = int(kernel.attrs.get("arg_count", max(numbers, default=-1) + 1))
        plan = SanitizerPlan(checks, first_hidden=first, hidden=[], sites=[], value_kinds={}, tracked=[])
        return cls(module, plan, Builder(Region(), kernel.loc), one_thread)

    @property
    def kernel(self) -> Function:
        return self.module.kernel

    def has(self, check: str) -> bool:
        """True if a check was requested."""
        return check in self.plan.checks

    def param(self, role: str, type: Type, arg: int = -1) -> Value:
        """Return the hidden parameter with this role and array argument (see `Hidden`); create it on first use."""
        hidden = Hidden(role, arg)
        if hidden not in self.params:
            body = self.kernel.body
            numbers = tuple(self.kernel.attrs.get("arg_index", range(len(body.args))))
            self.kernel.attrs["arg_index"] = (*numbers, self.plan.first_hidden + len(self.plan.hidden))
            value = Value(type, body, len(body.args), f"sanitizer_{role}" + (f"_{arg}" if arg >= 0 else ""))
            body.args.append(value)
            self.plan.hidden.append(hidden)
            self.params[hidden] = value
        return self.params[hidden]

    def scalar(self, role: str, arg: int = -1) -> Term:
        """Return the hidden scalar parameter with this role, cast to `index` in the prologue."""
        key = f"{role} {arg}"
        if key not in self.cached_terms:
            f = Formula(self.prologue)
            self.cached_terms[key] = f.term(self.param(role, Scalar(dtypes.i64), arg)).cast(dtypes.index)
        return self.cached_terms[key]

    def id(self, name: OpName, dim: int = 0) -> Term:
        """Return the id operation `name` (such as "local_id") along `dim`, emitted once in the prologue."""
        key = f"{name} {dim}"
        if key not in self.cached_terms:
            self.cached_terms[key] = Formula(self.prologue).term(self.prologue.emit(name, dim=dim))
        return self.cached_terms[key]

    @property
    def group(self) -> Term:
        """The linear id of the workgroup in the grid, x first."""
        if "group" not in self.cached_terms:
            row = self.id("group_id", 2) * self.id("num_groups", 1) + self.id("group_id", 1)
            self.cached_terms["group"] = row * self.id("num_groups", 0) + self.id("group_id", 0)
        return self.cached_terms["group"]

    @property
    def local_size(self) -> tuple[int, int, int]:
        x, y, z = self.kernel.attrs["local_size"]
        return x, y, z

    @property
    def invocations(self) -> int:
        """The number of invocations of a workgroup."""
        return math.prod(self.local_size)

    @property
    def local(self) -> Term:
        """The linear id of the invocation in its workgroup, x first."""
        if "local" not in self.cached_terms:
            x, y, z = self.local_size
            total = self.id("local_id", 0)
            if y > 1:
                total = total + self.id("local_id", 1) * x
            if z > 1:
                total = total + self.id("local_id", 2) * (x * y)
            self.cached_terms["local"] = total
        return self.cached_terms["local"]

    def finish(self) -> None:
        """Insert the prologue at the start of the kernel, and store the plan in its attributes."""
        self.kernel.body.ops[:0] = self.prologue.region.ops
        self.plan.local_size = self.local_size
        self.kernel.attrs["sanitizer_plan"] = self.plan
