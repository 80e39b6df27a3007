"""Hints for names and objects from CUDA, numba, Taichi, Triton, NumPy and Python that have no meaning in kernels.

The `advice_on_...` functions return the hint for an error message, or an empty string if there is no advice.
"""

from __future__ import annotations

import difflib
import math
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from .. import lang

__all__ = ["advice_on_attribute", "advice_on_capture", "advice_on_name", "advice_on_object", "is_foreign_function"]

_INDEX = "vk.global_id(0) is the index in the whole grid; in an over= kernel vk.index() is the index of the element"
_TILE = "in an over= kernel each invocation has one element: x[vk.global_id(0)]; on slices: x[i : i + SIZE]"
_LOAD = "read with x[i], or with x.get(i, pad=0) where i may lie outside"
_STORE = "write with x[i] = v, or with x.put(i, v) where i may lie outside"
_OTHER_SYSTEMS: dict[str, str] = {
    "threadIdx": "vk.local_id(0), vk.local_id(1), vk.local_id(2)",
    "blockIdx": "vk.group_id(0), vk.group_id(1), vk.group_id(2)",
    "blockDim": "vk.local_size(0), vk.local_size(1), vk.local_size(2)",
    "gridDim": "vk.num_groups(0), vk.num_groups(1), vk.num_groups(2)",
    "thread_id": _INDEX,
    "tid": _INDEX,
    "grid": _INDEX,
    "gridsize": "vk.num_groups(0) * vk.local_size(0); a loop over all elements is `for i in vk.grid_stride(n)`",
    "laneid": "vk.subgroup().rank()",
    "warpsize": "vk.subgroup().size()",
    "syncthreads": "vk.barrier()",
    "syncwarp": "operations of vk.subgroup() need no barrier",
    "block_sync": "vk.barrier()",
    "sync": "vk.barrier()",
    "threadfence": "vk.fence()",
    "program_id": "vk.group_id(0)",
    "num_programs": "vk.num_groups(0)",
    "arange": _TILE,
    "load": _LOAD,
    "store": _STORE,
    "dot_product": "vk.dot of two vectors, wg.mma of two slices",
    "constexpr": "vk.Const[int]",
    "static": "constants are known as they are; `for i in vk.unroll(n)` writes a loop out",
    "static_range": "vk.unroll(n)",
    "prange": "write over= at the decorator, or `for i in vk.grid_stride(n)`",
    "ndrange": "`i, j = vk.index()` in an over= kernel, or one `for i in range(n)` inside the other",
    "grouped": "`i, j = vk.index()` in an over= kernel",
    "field": 'an array that is passed as an argument: vk.InOut[vk.f32, "N"]',
    "template": "annotate the parameter as vk.Const[...], or leave out its annotation",
    "Vector": "vk.vec(vk.f32, 3)(a, b, c)",
    "Matrix": "vk.local(vk.f32, (3, 3))",
    "cast": "a dtype converts: vk.f32(x)",
    "select": "vk.where(condition, a, b)",
    "random": "vk.rand(seed, counter)",
    "shared_array": "vk.shared(dtype, shape)",
    "local_array": "vk.local(dtype, shape)",
    "zeros_like": "vk.local(dtype, shape)",
    "maximum": "vk.max(a, b)",
    "minimum": "vk.min(a, b)",
    "static_assert": "assert with a condition known at compile time",
    "device_print": "print(...)",
    "jit": "@vk.kernel, and @vk.func for functions that kernels call",
    "float16": "vk.f16",
    "float32": "vk.f32",
    "float64": "vk.f64",
    "bfloat16": "vk.bf16",
    "int8": "vk.i8",
    "int16": "vk.i16",
    "int32": "vk.i32",
    "int64": "vk.i64",
    "uint8": "vk.u8",
    "uint16": "vk.u16",
    "uint32": "vk.u32",
    "uint64": "vk.u64",
    "bool": "vk.boolean",
    **{f"atomic_{name}": f"vk.atomic.{name}(x, i, v)" for name in ("add", "sub", "min", "max", "xor", "cas")},
    "atomic_and": "vk.atomic.and_(x, i, v)",
    "atomic_or": "vk.atomic.or_(x, i, v)",
    "atomic_xchg": "vk.atomic.exchange(x, i, v)",
}
"""Names from other systems, mapped to their vkjit equivalent."""

# What to write instead of functions of NumPy (`_NUMPY`) and of Python (`_BUILTINS`), by the function's name.
_ARRAYS = "for a small array of the invocation: vk.local(dtype, shape); for a large one: an argument"
_REDUCTION = "loop over the elements, or combine a slice in a kernel with groups=: vk.workgroup().{}(x[r, :])"
_NUMPY: dict[str, str] = {
    **dict.fromkeys(
        ("zeros", "ones", "empty", "full", "array", "asarray", "zeros_like", "empty_like", "ones_like", "linspace"),
        _ARRAYS,
    ),
    "arange": _TILE,
    **{name: _REDUCTION.format(name) for name in ("sum", "prod", "argmin", "argmax", "any", "all")},
    "amax": _REDUCTION.format("max"),
    "amin": _REDUCTION.format("min"),
    "max": _REDUCTION.format("max"),
    "min": _REDUCTION.format("min"),
    "mean": "loop over the elements, or divide a sum: vk.workgroup().sum(x[r, :]) / len(x)",
    "dot": "write the loop over the products, or vk.workgroup().mma(a, b, acc) on slices",
    "matmul": "write the loop over the products, or vk.workgroup().mma(a, b, acc) on slices",
    "clip": "vk.clamp(x, low, high)",
}
_RANDOM = "vk.rand(seed, counter): uniform in [0, 1), a number for each counter; vk.randn, vk.randint"
_BUILTINS: dict[str, str] = {
    "isinstance": "compare the type, which is known at compile time: x.dtype is vk.f32",
    "type": "the type of an array's elements is x.dtype",
    "complex": "write a @vk.struct with two fields, re and im",
    "str": "text can be printed only: print(...)",
    "repr": "text can be printed only: print(...)",
    "list": "vk.local(dtype, shape), or a tuple",
    "dict": "choose with if/elif, or pass a table as an array argument",
    "set": "compare with `==` and `or`",
    "sorted": "sort in a loop over vk.local(dtype, shape)",
    "map": "write a for loop",
    "filter": "write a for loop with an `if`",
    "open": "read before the launch, and pass an array",
    "input": "read before the launch, and pass an array",
    "any": "write `or`, or vk.workgroup().any(condition)",
    "all": "write `and`, or vk.workgroup().all(condition)",
    "reversed": "count down: range(n - 1, -1, -1)",
    "slice": "write x[start:stop]",
    "eval": "write the expression",
    "exec": "write the statements",
    "getattr": "write the attribute: x.name",
    "hasattr": "write the attribute, or compare x.dtype",
}


def advice_on_attribute(module: object, name: str) -> str:
    """Return the hint for an attribute `name` that a module doesn't have; empty if `module` is no module."""
    if not isinstance(module, ModuleType):
        return ""
    if module.__name__ == "vkjit" and name in _OTHER_SYSTEMS:
        return _OTHER_SYSTEMS[name]
    close = difflib.get_close_matches(name, dir(module), 1)
    if close:
        return f"did you mean {close[0]}?"
    module_text = "vk" if module.__name__ == "vkjit" else module.__name__
    return f"dir({module_text}) lists what there is"


def advice_on_name(name: str) -> str:
    """Return the hint for an undefined name.

    Knows the functions of `vk` and `math`, which may lack their prefix, and names from other systems.
    """
    if hasattr(lang, name):
        return f"write vk.{name}"
    if hasattr(math, name):
        return f"write math.{name}"
    return _OTHER_SYSTEMS.get(name, "")


def advice_on_object(value: Any) -> str:
    """Return the hint for an object that has no meaning in kernels."""
    name, module = getattr(value, "__name__", ""), _module_of(value)
    if module == "random" or module.startswith("numpy.random"):
        return _RANDOM
    if module.split(".")[0] == "numpy":
        return _NUMPY.get(name, "kernels know the elementwise functions that NumPy shares with vk: np.exp, np.minimum")
    if module == "time":
        return "measure around the launch, with vk.synchronize() before the second reading"
    if module == "builtins" and name in _BUILTINS:
        return _BUILTINS[name]
    return ""


def _module_of(value: Any) -> str:
    """Return the module of a function; for a bound method, the module of its instance's class."""
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        return str(type(owner).__module__)
    return str(getattr(value, "__module__", None) or "")


def is_foreign_function(value: object) -> bool:
    """True if the object is a callable of NumPy or `random` that isn't a plain Python function or a type."""
    is_foreign = _module_of(value).split(".")[0] in ("numpy", "random")
    return callable(value) and is_foreign and not isinstance(value, (FunctionType, type, np.generic))


def advice_on_capture(text: str, value: object) -> str:
    """Return the hint for an object that a kernel may not capture."""
    if isinstance(value, dict):
        return "give each value a name of its own, choose with if/elif, or pass a table as an array argument"
    if isinstance(value, np.ndarray):
        return f"pass {text} as an array argument"
    if isinstance(value, (list, set)):
        return f"make {text} a tuple where it holds constants, or pass an array; results are written to array arguments"
    return f"pass what you need of it as arguments, or make {text} a number or a tuple"
