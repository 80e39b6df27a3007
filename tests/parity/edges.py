"""Writes `tests/device/edge_cases.json`: small samples of PyTorch's tests, and PyTorch's results at the edges.

    python -m tests.parity.edges

Enters: the operations of `ops.txt` and PyTorch's OpInfo samples of them in f32 (int64 or bool where there are none). Leaves: for
each operation up to two samples of at most `SIZE` elements (or one of at most `MOST`), with PyTorch's results for every kind
of `edge_cases.KINDS` that it accepts. Where its f32 result is off its f64 result by more than its own tolerances, both are kept.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.device import edge_cases  # noqa: E402  # after the path
from tests.parity.opinfo import names  # noqa: E402
from tests.parity.opinfo_compare import SHAPE_ONLY  # noqa: E402

SIZE = 30
MOST = 150
"""Elements of a sample; of the only one of an operation that has no smaller ones."""
SAMPLES = 2
TYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool",
}  # fmt: skip
BACK = {name: dtype for dtype, name in TYPES.items()}


class Unfit(Exception):
    """A sample or a result that the file doesn't hold."""


def encode(value: Any, *, digits: int | None = None) -> Any:
    """A value as `edge_cases.decode` reads it; floats rounded to so many digits after the point."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in TYPES or value.layout is not torch.strided or value.numel() > 2 * MOST:
            raise Unfit
        data: Any = value.detach().flatten().tolist()
        if value.is_floating_point():
            data = [_float(v, digits) for v in data]
        return {"type": TYPES[value.dtype], "shape": list(value.shape), "data": data}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"number": repr(value)} if value != value or value in (float("inf"), -float("inf")) else value
    if isinstance(value, torch.Size):
        return {"tuple": list(value)}
    if isinstance(value, list):
        return [encode(v, digits=digits) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(v, digits=digits) for v in value]}
    if isinstance(value, dict):
        return {"dict": {k: encode(v, digits=digits) for k, v in value.items()}}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, torch.dtype) and value in TYPES:
        return {"dtype": TYPES[value]}
    raise Unfit


def _float(value: float, digits: int | None) -> Any:
    if value != value or value in (float("inf"), -float("inf")):
        return str(value)
    return round(value, digits) if digits is not None else float(f"{value:.9g}")


def to_torch(arguments: Any, dtype: torch.dtype | None = None) -> Any:
    """Decoded arguments as PyTorch's; floats in `dtype`."""
    if isinstance(arguments, (list, tuple)):
        items = [to_torch(a, dtype) for a in arguments]
        return items if isinstance(arguments, list) else tuple(items)
    if isinstance(arguments, dict):
        return {k: to_torch(a, dtype) for k, a in arguments.items()}
    if isinstance(arguments, edge_cases.Array):
        made = torch.from_numpy(arguments.values.copy())
        return made.to(dtype) if dtype is not None and made.is_floating_point() else made
    name = getattr(arguments, "name", None)
    if name in BACK:
        return dtype if dtype is not None and BACK[name].is_floating_point else BACK[name]
    return arguments


def result_of(op: Any, arguments: Any) -> Any:
    """PyTorch's result in f32, with that in f64 where the two are apart; None where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = to_torch(arguments)
            found = op(*args, **kwargs)
            kept = encode(found if not isinstance(found, tuple) else tuple(found))
        except Exception:  # noqa: BLE001  whatever PyTorch refuses such arguments with
            return None
        try:
            args, kwargs = to_torch(arguments, torch.float64)
            exact = op(*args, **kwargs)
        except Exception:  # noqa: BLE001  no result in f64: the other one has to do
            return {"found": kept}
    if _apart(found, exact):
        return {"found": kept, "exact": encode(exact if not isinstance(exact, tuple) else tuple(exact))}
    return {"found": kept}


def _apart(found: Any, exact: Any) -> bool:
    if isinstance(found, torch.Tensor):
        if not found.is_floating_point() or not isinstance(exact, torch.Tensor) or found.shape != exact.shape:
            return False
        return not torch.allclose(found.double(), exact.double(), 3e-7, 2e-6, equal_nan=True)
    if isinstance(found, (tuple, list)):
        return any(_apart(f, e) for f, e in zip(found, exact, strict=True))
    return False


def _rows(name: str) -> list[dict[str, Any]]:
    """The cases of one operation."""
    rows: list[dict[str, Any]] = []
    for op in (o for o in op_db if o.name == name):
        dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if op.supports_dtype(d, "cpu")), None)
        if dtype is None:
            continue
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype))
        samples.sort(key=lambda s: abs(_elements(s) - SIZE // 2))
        for sample in samples:
            if _elements(sample) > (MOST if not rows else SIZE):
                continue
            row = _row(op, name, sample)
            if row is not None and not any(r["args"] == row["args"] and r["kwargs"] == row["kwargs"] for r in rows):
                rows.append(row)
            if len(rows) >= SAMPLES:
                return rows
    return rows


def _elements(sample: Any) -> int:
    found: list[int] = []

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value.numel())
        for v in value if isinstance(value, (list, tuple)) else ():
            walk(v)

    walk((sample.input, *sample.args))
    return sum(found)


def _row(op: Any, name: str, sample: Any) -> dict[str, Any] | None:
    if _elements(sample) < 2:
        return None
    kwargs = {k: v for k, v in sample.kwargs.items() if k not in ("device", "layout", "pin_memory", "memory_format")}
    try:
        args = [encode(v, digits=3) for v in (sample.input, *sample.args)]
        named = {k: encode(v, digits=3) for k, v in kwargs.items()}
    except Unfit:
        return None
    arguments = (edge_cases.decode({"tuple": args}), edge_cases.decode({"dict": named}))
    expected = {}
    for kind in () if name in SHAPE_ONLY else edge_cases.KINDS:
        given = edge_cases.changed(arguments, kind)
        result = None if given is None else result_of(op.op, given)
        if result is not None:
            expected[kind] = result
    return (
        {"name": name, "args": args, "kwargs": named, "expected": expected} if expected or name in SHAPE_ONLY else None
    )


def main() -> None:
    """The command."""
    torch.set_num_threads(1)
    rows = [row for name in names() for row in _rows(name)]
    text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
    edge_cases.FILE.write_text(text, encoding="utf-8")
    print(f"{len(rows)} cases of {len({r['name'] for r in rows})} operations, {len(text) >> 10} KiB")


if __name__ == "__main__":
    main()
