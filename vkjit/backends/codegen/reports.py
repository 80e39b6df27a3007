"""Layout of reports as code generators emit them, and what the host needs to decode them.

For `report %cond, values... {site}`, an invocation for which the condition holds claims the report buffer (see
`runtime.artifact.REPORT_WORDS`) and stores its values, 64 bits each: integers and bools as i64, floats as the bits of
an f64. `describe` tells the host how to read them.
"""

from __future__ import annotations

from typing import Any

from vkjit.ir.core import Op, Value
from vkjit.runtime.artifact import REPORT_WORDS

__all__ = ["FIRST_VALUE", "MAX_VALUES", "describe"]

FIRST_VALUE = 4
"""The word of a report at which its values begin."""
MAX_VALUES = (REPORT_WORDS - FIRST_VALUE) // 2


def describe(reports: list[Op]) -> dict[str, Any]:
    """Return `report_values` for the artifact's `info`: the kinds of the values, as `DType.kind` has them, by site."""
    kinds = {op.attrs["site"]: tuple(map(_kind, op.operands[1 : 1 + MAX_VALUES])) for op in reports}
    return {"report_values": kinds} if kinds else {}


def _kind(value: Value) -> str:
    dtype = getattr(value.type, "dtype", None)
    return "int" if dtype is None else dtype.kind
