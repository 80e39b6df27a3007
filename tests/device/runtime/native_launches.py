# mypy: disable-error-code="arg-type, attr-defined, call-arg, call-overload, index, misc, no-untyped-call, no-untyped-def"
# mypy: disable-error-code="operator, valid-type"
"""A mock driver that records its calls, and random kernel calls."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import vkjit as vk
from vkjit.backends.vulkan.runtime.device import VulkanDevice

SHIFT: Any = 1.0


@vk.kernel(over="out")
def along(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = a[i] - 2.0 * b[i]


@vk.kernel(over="out")
def across(a: vk.In[vk.f32, "M N"], b: vk.In[vk.f32, "N"], out: vk.InOut[vk.f32, "M N"]):
    i, j = vk.index()
    out[i, j] = out[i, j] + a[i, j] * b[j]


@vk.kernel(over="x")
def scaled(x: vk.InOut[vk.f32, "N"], factor: vk.f32, step: vk.i32, flip: vk.boolean, wide: vk.f64):
    i = vk.global_id(0)
    x[i] = (x[i] * factor + vk.f32(step)) * (-1.0 if flip else 1.0) + vk.f32(wide)


@vk.kernel(over="x")
def limited(x: vk.InOut[vk.i32, "N"], small: vk.u8, huge: vk.u64, negative: vk.i64):
    i = vk.global_id(0)
    x[i] = x[i] + vk.i32(small) + vk.i32(huge % 7) + vk.i32(negative % 5)


@vk.kernel(over="x")
def constant(x: vk.InOut[vk.f32, "N"], K: vk.Const[int]):
    i = vk.global_id(0)
    x[i] = x[i] * K


@vk.kernel(over="x")
def shifted(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] + SHIFT


@vk.kernel(over="x")
def fixed(x: vk.InOut[vk.f32, "4 N"], y: vk.In[vk.f32, "N N"]):
    i, j = vk.index()
    x[i, j] = x[i, j] + y[j, j]


@vk.kernel(groups=2, local=32)
def counted(x: vk.InOut[vk.i32, "N"], total: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        vk.atomic.add(total, 0, x[i])


@vk.kernel(over="a")
def many(
    a: vk.Out[vk.f32, "N"],
    b: vk.In[vk.f32, "N"],
    c: vk.InOut[vk.f32, "N"],
    d: vk.In[vk.f32, "N"],
    e: vk.Out[vk.f32, "N"],
):
    i = vk.global_id(0)
    a[i] = b[i] + d[i]
    c[i] = c[i] + 1.0
    e[i] = b[i] - d[i]


@vk.kernel(over="out")
def mixed(a: vk.In[vk.i64, "N"], b: vk.In[vk.i64, "N"], step: vk.i64, out: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    out[i] = (a[i] * 31 + b[i] * 17 + step) % 1009


KERNELS = (along, across, scaled, limited, constant, shifted, fixed, counted, many)
"""Kernels that random calls choose from."""


class Driver:
    """A mock of the driver's command functions that records their arguments."""

    def __init__(self, device: VulkanDevice) -> None:
        self.calls: list[tuple[Any, ...]] = []
        pointer, number, long = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        self._kept = (
            self._function("bind", pointer, number, long),
            ctypes.CFUNCTYPE(None, pointer, long, number, number, number, pointer)(self._push),
            self._function("dispatch", pointer, number, number, number),
            self._function("barrier", pointer, number, number, number, number, long, number, long, number, long),
        )
        recorder, self._queue = device._fast_path, device._queue
        self._ffi, self._table = recorder._ffi, recorder._table
        self._usual = bytes(self._ffi.buffer(self._table))
        functions = [ctypes.cast(f, pointer).value or 0 for f in self._kept]
        self._ffi.buffer(self._table)[: 8 * len(functions)] = b"".join(f.to_bytes(8, "little") for f in functions)

    def __enter__(self) -> Driver:
        self._found = {name: getattr(self._queue, name) for name in ("_bind", "_push", "_dispatch")}
        for name in self._found:  # slow-path launches would rely on commands that are only recorded
            setattr(self._queue, name, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._found.items():
            setattr(self._queue, name, function)
        self._ffi.buffer(self._table)[:] = self._usual

    def _function(self, name: str, *kinds: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *kinds)(lambda *a: self.calls.append((name, *a[1:])))

    def _push(self, command: int, *rest: Any) -> None:
        del command
        self.calls.append(("push", *rest[:-1], ctypes.string_at(rest[-1], rest[-2])))


class Arguments:
    """Tensors of many kinds for random calls, with the same set for every call."""

    def __init__(self, device: VulkanDevice) -> None:
        def made(*shape: int, dtype: Any = vk.f32) -> Any:
            return vk.zeros(shape, dtype=dtype, device=device)

        self.device = device
        whole = made(600)
        self.lines = {n: [made(n) for _ in range(6)] for n in (1, 129)}
        self.lines[100] = [whole[:100], whole[100:200], whole[::2][:100], whole[50:150], made(100), made(200)[::2]]
        self.lines[100] += [made(100).__vkjit_array__]
        self.tables = {(m, n): [made(m, n) for _ in range(3)] for m, n in ((4, 5), (3, 129))}
        self.tables[4, 5].append(made(5, 4).T)
        self.squares = [made(5, 5), made(5, 10)[:, ::2]]
        self.wholes = [made(n, dtype=vk.i32) for n in (1, 60, 64)]

    def call(self, chance: random.Random) -> tuple[Any, tuple[Any, ...]]:
        pick = chance.choice
        kernel = pick(KERNELS)
        n = pick(list(self.lines))
        line = self.lines[n]
        if kernel is along:
            return along, (pick(line), pick(line), pick(line))
        if kernel is across:
            m, n = pick(list(self.tables))
            rows = self.lines.get(n) or [table[0] for table in self.tables[4, 5][:3]]
            return across, (pick(self.tables[m, n]), pick(rows), pick(self.tables[m, n]))
        if kernel is scaled:
            factor = pick([1.5, -0.0, 3, float("inf"), float("nan"), 3.4e38])
            return scaled, (
                pick(line),
                factor,
                pick([-(2**31), 2**31 - 1, 0, True]),
                pick([True, False]),
                pick([1e300, 2]),
            )
        if kernel is limited:
            return limited, (
                pick(self.wholes),
                pick([0, 255]),
                pick([0, 2**63 - 1, 2**64 - 1]),
                pick([-1, -(2**63), 5]),
            )
        if kernel is constant:
            return constant, (pick(line), pick([2, 3, 100_000]))
        if kernel is fixed:
            return fixed, (pick(self.tables[4, 5]), pick(self.squares))
        if kernel is counted:
            return counted, (pick(self.wholes), self.wholes[0])
        return (many, tuple(pick(line) for _ in range(5))) if kernel is many else (shifted, (pick(line),))


def half_made(x: vk.Tensor, unset: str) -> vk.Tensor:
    """Return a copy of a tensor without the slot `unset` of itself or its array, or a tensor without any ("all")."""
    if unset == "all":
        return vk.Tensor.__new__(vk.Tensor)
    broken = x.clone()
    # `object`'s function: the classes may refuse changes
    object.__delattr__(broken if hasattr(broken, unset) else broken._array, unset)
    return broken
