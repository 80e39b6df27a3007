"""Write `tests/device/tensor/edge_cases.json`: small samples of PyTorch's tests with PyTorch's results at the edges.

    python -m tests.parity.ops.edges

For each operation of `ops.txt`, takes up to `SAMPLES` of PyTorch's OpInfo samples of at most `SIZE` elements (or one of
at most `MAX_ELEMENTS`) in f32, or in int64 or bool if it has none. Stores PyTorch's results for every kind of
`edge_cases.KINDS` that PyTorch accepts, and also its f64 result where the f32 result isn't close to it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.device.tensor import edge_cases  # noqa: E402  # after the change of sys.path
from tests.parity.ops.opinfo import names  # noqa: E402
from tests.parity.ops.opinfo_compare import SHAPE_ONLY  # noqa: E402

SIZE = 30
MAX_ELEMENTS = 150
"""Maximum number of elements of a sample, if the operation has no smaller one."""
SAMPLES = 2
TYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool",
}  # fmt: skip
BACK = {name: dtype for dtype, name in TYPES.items()}


class Unfit(Exception):
    """Raised for a sample or a result that the file can't represent."""


def encode(value: Any, *, digits: int | None = None) -> Any:
    """Encode a value for `edge_cases.decode`; `digits` rounds floats to that many decimal places."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in TYPES or value.layout is not torch.strided or value.numel() > 2 * MAX_ELEMENTS:
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
    """Convert decoded arguments to PyTorch's, with floats in `dtype`."""
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
    """Return PyTorch's f32 result, with its f64 result where they differ; None if PyTorch rejects the arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = to_torch(arguments)
            found = op(*args, **kwargs)
            kept = encode(found if not isinstance(found, tuple) else tuple(found))
        except Exception:  # noqa: BLE001  PyTorch rejects the arguments
            return None
        try:
            args, kwargs = to_torch(arguments, torch.float64)
            exact = op(*args, **kwargs)
        except Exception:  # noqa: BLE001  no result in f64: store the f32 result only
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
    """Return the cases of one operation."""
    rows: list[dict[str, Any]] = []
    for op in (o for o in op_db if o.name == name):
        dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if op.supports_dtype(d, "cpu")), None)
        if dtype is None:
            continue
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype))
        samples.sort(key=lambda s: abs(_elements(s) - SIZE // 2))
        for sample in samples:
            if _elements(sample) > (MAX_ELEMENTS if not rows else SIZE):
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
    """Run the command."""
    torch.set_num_threads(1)
    rows = [row for name in names() for row in _rows(name)]
    text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
    edge_cases.FILE.write_text(text, encoding="utf-8")
    print(f"{len(rows)} cases of {len({r['name'] for r in rows})} operations, {len(text) >> 10} KiB")


if __name__ == "__main__":
    main()
