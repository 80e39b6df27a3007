"""Text for the host: f-strings and values in `assert` and `print` become a template and the values for it.

Enters: the node of a message. Leaves: a `str.format` template over numbered values, and those values; literals are
put into the text at once.
"""

from __future__ import annotations

import ast

from ..ir.core import Value
from .context import Context
from .conversions import materialize
from .values import KernelValue, describe_value, is_literal

__all__ = ["message_of", "template_of_values"]


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def message_of(ctx: Context, node: ast.expr) -> tuple[str, list[Value]]:
    """The template and the run-time values of a message: a string, an f-string or a value."""
    values: list[Value] = []
    if isinstance(node, ast.JoinedStr):
        parts = [_part(ctx, item, values) for item in node.values]
        return "".join(parts), values
    return _placed(ctx, node, ctx.evaluate(node), values, ""), values


def _part(ctx: Context, node: ast.expr, values: list[Value]) -> str:
    if isinstance(node, ast.Constant):
        return _escaped(str(node.value))
    if not isinstance(node, ast.FormattedValue):
        raise ctx.error(node, "this can't be formatted in a kernel")
    if node.conversion not in (-1, 115):
        raise ctx.error(node, "!r and !a can't be used in a kernel", "leave the conversion out")
    spec = ""
    if node.format_spec is not None:
        spec = "".join(str(v.value) for v in node.format_spec.values if isinstance(v, ast.Constant))  # type: ignore[attr-defined]
    return _placed(ctx, node.value, ctx.evaluate(node.value), values, spec)


def _placed(ctx: Context, node: ast.expr, value: KernelValue, values: list[Value], spec: str) -> str:
    if isinstance(value, str) or value is None or is_literal(value):
        try:
            return _escaped(format(value, spec))
        except ValueError as error:
            raise ctx.error(node, str(error)) from None
    if isinstance(value, tuple):
        return "(" + ", ".join(_placed(ctx, node, item, values, spec) for item in value) + ")"
    if not isinstance(value, Value):
        return _escaped(describe_value(value))
    values.append(materialize(ctx, node, value))
    return "{" + str(len(values) - 1) + (f":{spec}" if spec else "") + "}"


def template_of_values(ctx: Context, nodes: list[ast.expr], separator: str) -> tuple[str, list[Value]]:
    """The template and the values of several messages in a row."""
    parts: list[str] = []
    values: list[Value] = []
    for node in nodes:
        template, more = message_of(ctx, node)
        parts.append(_shifted(template, len(values)) if more else template)
        values += more
    return _escaped(separator).join(parts), values


def _shifted(template: str, offset: int) -> str:
    """The template with its value numbers raised by `offset`."""
    import string

    text = ""
    for literal, field, spec, _ in string.Formatter().parse(template):
        text += _escaped(literal)
        if field is not None:
            text += "{" + str(int(field) + offset) + (f":{spec}" if spec else "") + "}"
    return text
