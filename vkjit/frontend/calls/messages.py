"""Messages of `assert` and `print`: compile f-strings and values to a `str.format` template and run-time values.

Literals are formatted at compile time. The device reports the run-time values, and the host fills them into the
template.
"""

from __future__ import annotations

import ast
import re

from vkjit.ir.core import Value
from vkjit.ir.types import Scalar, Vector

from ..context import Context
from ..kernel_values import KernelValue, describe_value, is_literal
from ..values.conversions import materialize
from ..values.vectors import lane

__all__ = ["message_of", "template_of_values"]

_MAX_WIDTH = 1000
"""Upper bound for the width and the precision of a formatted value, in characters."""


def _escaped(text: str) -> str:
    """Return a template that formats to `text`."""
    return text.replace("{", "{{").replace("}", "}}")


def message_of(ctx: Context, node: ast.expr) -> tuple[str, list[Value]]:
    """Return the template and the run-time values of a message: a string, an f-string or any other expression."""
    values: list[Value] = []
    if isinstance(node, ast.JoinedStr):
        parts = [_part(ctx, item, values) for item in node.values]
        return "".join(parts), values
    return _format_value(ctx, node, ctx.evaluate(node), values, ""), values


def _part(ctx: Context, node: ast.expr, values: list[Value]) -> str:
    """Return the template of one part of an f-string, and append its run-time values to `values`."""
    if isinstance(node, ast.Constant):
        return _escaped(str(node.value))
    if not isinstance(node, ast.FormattedValue):
        raise ctx.error(node, "this can't be formatted in a kernel")
    value = ctx.evaluate(node.value)
    if node.conversion in (97, 114) and not isinstance(value, Value | tuple):  # !a or !r; for numbers the same as !s
        value = repr(value)
    return _format_value(ctx, node.value, value, values, _format_spec(ctx, node.format_spec))


def _format_spec(ctx: Context, node: ast.expr | None) -> str:
    """Return the format specification of a field as text; values in it must be compile-time constants."""
    spec = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        part_value: KernelValue = part.value if isinstance(part, ast.Constant) else None
        if isinstance(part, ast.FormattedValue):
            part_value = ctx.evaluate(part.value)
        if not isinstance(part_value, str | int):
            raise ctx.error(part, f"a format is known at compile time, found {describe_value(part_value)}")
        spec += str(part_value)
    if node is not None and any(int(number[:20]) > _MAX_WIDTH for number in re.findall(r"\d+", spec)):
        raise ctx.error(node, f"the format {spec[:40]!r} is wider than {_MAX_WIDTH} characters", "use a smaller width")
    return spec


def _format_value(ctx: Context, node: ast.expr, value: KernelValue, values: list[Value], spec: str) -> str:
    """Return the template of a value with a format specification, and append its run-time values to `values`."""
    if isinstance(value, str) or value is None or is_literal(value):
        try:
            return _escaped(format(value, spec))
        except ValueError as error:
            raise ctx.error(node, str(error)) from None
    if isinstance(value, tuple):
        return "(" + ", ".join(_format_value(ctx, node, item, values, spec) for item in value) + ")"
    if not isinstance(value, Value):
        return _escaped(describe_value(value))
    if isinstance(value.type, Vector):
        lanes = [lane(ctx, value, number) for number in range(value.type.size)]
        return "[" + ", ".join(_format_value(ctx, node, item, values, spec) for item in lanes) + "]"
    values.append(materialize(ctx, node, value))
    _check_spec(ctx, node, values[-1], spec)
    return "{" + str(len(values) - 1) + (f":{spec}" if spec else "") + "}"


def _check_spec(ctx: Context, node: ast.expr, value: Value, spec: str) -> None:
    """Raise CompileError if the format specification isn't valid for the value's type."""
    assert isinstance(value.type, Scalar)
    dtype = value.type.dtype
    sample: bool | int | float = True if dtype.kind == "bool" else 1.0 if dtype.is_float else 1
    try:
        format(sample, spec)
    except (TypeError, ValueError):
        hint = "see Python's format specifications"
        raise ctx.error(node, f"the format {spec!r} isn't for {describe_value(value)}", hint) from None


def template_of_values(ctx: Context, nodes: list[ast.expr], separator: str) -> tuple[str, list[Value]]:
    """Return the template and the run-time values of several messages, joined by `separator`."""
    parts: list[str] = []
    values: list[Value] = []
    for node in nodes:
        template, message_values = message_of(ctx, node)
        parts.append(_shifted(template, len(values)) if message_values else template)
        values += message_values
    return _escaped(separator).join(parts), values


def _shifted(template: str, offset: int) -> str:
    """Return the template with its field numbers increased by `offset`: "{0}" becomes "{2}" for an offset of 2."""
    import string

    text = ""
    for literal, field, spec, _ in string.Formatter().parse(template):
        text += _escaped(literal)
        if field is not None:
            text += "{" + str(int(field) + offset) + (f":{spec}" if spec else "") + "}"
    return text
