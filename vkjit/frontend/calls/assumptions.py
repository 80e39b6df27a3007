"""Lowering of `vk.assume(condition)` to an `assume` operation.

Later passes rely on the condition. The interpreter and debug mode check it and report a violation.
"""

from __future__ import annotations

import ast

from vkjit import lang
from vkjit.errors import ReportSite
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL

from ..context import Call, Context
from ..intrinsics import lowers
from ..kernel_values import KernelValue
from ..values.conversions import truth

__all__: list[str] = []

_COMPARISONS: frozenset[OpName] = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@lowers(lang.assume)
def _assume(ctx: Context, call: Call, condition: KernelValue) -> KernelValue:
    """Lower `vk.assume`. A condition that is true at compile time emits nothing; a false one is a CompileError if the
    call is certainly reached.
    """
    node = call.node
    condition_text = ast.unparse(node.args[0] if isinstance(node, ast.Call) and node.args else node)
    test = truth(ctx, node, condition)
    if test is True:
        return None
    if test is False and ctx.is_certainly_reached():
        raise ctx.error(node, f"the promise {condition_text} doesn't hold: it is false at compile time")
    message = f"vk.assume: {condition_text} doesn't hold".replace("{", "{{").replace("}", "}}")
    values: list[Value] = []
    if test is False:
        test = ctx.builder.const(False, BOOL)
    if test.op is not None and test.op.name in _COMPARISONS:  # the report shows both sides of a comparison
        values = list(test.op.operands)
        message += ", {0} stands on the left and {1} on the right"
    site = ctx.session.module.add_site(ReportSite("assume", ctx.loc(node), message))
    ctx.builder.loc = ctx.loc(node)
    ctx.builder.op("assume", test, *values, site=site)
    return None
