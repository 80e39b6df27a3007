"""Lowering of `print` to a `print` operation.

The operation refers to a report site, which holds the template of the text, and has the run-time values as operands;
see `messages`.
"""

from __future__ import annotations

import ast
import builtins

from vkjit.errors import ReportSite

from ..context import Call, Context
from ..intrinsics import intrinsic
from ..kernel_values import KernelValue
from .messages import template_of_values

__all__: list[str] = []

VALUE_LIMIT = 64
"""The maximum number of run-time values in one `print`."""


@intrinsic(builtins.print)
def _print(ctx: Context, call: Call) -> KernelValue:
    """Lower `print(...)`; `sep` and `end` must be literal strings."""
    options = {"sep": " ", "end": "\n"}
    for keyword in call.node.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg not in options or not isinstance(value, str):
            raise ctx.error(keyword.value, "print takes values, and literal strings for sep and end, in a kernel")
        options[keyword.arg] = value
    template, values = template_of_values(ctx, call.node.args, options["sep"])
    if len(values) > VALUE_LIMIT:
        raise ctx.error(call.node, f"{len(values)} values in one print (up to {VALUE_LIMIT})", "print several times")
    end = options["end"].replace("{", "{{").replace("}", "}}")
    site = ctx.session.module.add_site(ReportSite("print", ctx.loc(call.node), template + end))
    ctx.builder.loc = ctx.loc(call.node)
    ctx.builder.op("print", *values, site=site)
    return None


# `_print` evaluates its arguments itself: f-strings are allowed here, but aren't kernel values.
_print._raw_arguments = True  # type: ignore[attr-defined]
