"""Inline all calls of device functions, and remove the functions.

Takes a module in normal form (see `ir.verify`), in which the only `return` of a function is its last operation::

    func @half(%x: f32) -> (f32) {
      %h = const 0.5 : f32
      %y = mul %x, %h : f32                    %h = const 0.5 : f32
      return %y                       ->       %y = mul %a, %h : f32
    }                                          store %x, %i, %y
    ...
    %0 = call %a {callee = "half"} : f32
    store %x, %i, %0

Calls are inlined bottom-up: callees before their callers, so each call copies a body without calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.errors import InternalError
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Value
from vkjit.ir.rewrite import clone_op, rewrite_region

from ..size_limits import check_size

__all__ = ["Inline"]


@dataclass(frozen=True, slots=True)
class Inline:
    """Inline all device functions into the kernel."""

    name: ClassVar[str] = "inline"

    def run(self, module: Module) -> Module:
        check_size(module)
        done: set[str] = set()
        for name in module.functions:
            _inline_calls(module, module.functions[name], done, ())
        _inline_calls(module, module.kernel, done, ())
        module.functions.clear()
        return module


def _inline_calls(module: Module, function: Function, done: set[str], path: tuple[str, ...]) -> None:
    """Inline all calls in a function, after the calls in the functions that it calls.

    `done` has the names of finished functions, `path` the names of the callers. Raises InternalError for recursion.
    """
    if function.name in done and function is not module.kernel:
        return
    if function.name in path:
        raise InternalError(f"functions call themselves in a circle: {' -> '.join((*path, function.name))}")
    for op in function.body.walk():
        if op.name == "call":
            _inline_calls(module, module.functions[op.attrs["callee"]], done, (*path, function.name))

    def rule(op: Op, builder: Builder) -> list[Value] | None:
        return _body(op, module.functions[op.attrs["callee"]], builder) if op.name == "call" else None

    rewrite_region(function.body, rule)
    done.add(function.name)


def _body(call: Op, callee: Function, builder: Builder) -> list[Value]:
    """Append a copy of the callee's body and return the values that it returns."""
    mapping = dict(zip(callee.params, call.operands, strict=True))
    ops = [clone_op(op, mapping) for op in callee.body.ops]
    last = ops.pop()
    if last.name != "return":
        raise InternalError(f"@{callee.name} isn't in normal form: it ends in {last.name}")
    builder.region.ops += ops
    return last.operands
