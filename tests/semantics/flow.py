"""Cases of the table of semantics: control flow, memory, captures, output."""

# mypy: disable-error-code="valid-type, index, misc"
# ruff: noqa: B007
from __future__ import annotations

import contextlib
import io
from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from tests.semantics.table import (
    ALL,
    BOOL,
    FLOATS,
    INDEX,
    INTEGERS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Raised,
    Refused,
    Table,
)
from tests.semantics.values import array_type, few, several
from vkjit.dtypes import DType
from vkjit.runtime.sanitizer_reports import SanitizerError

T = TypeVar("T", bound=vk.Element)
TABLE = Table()
case, not_for = TABLE.case, TABLE.not_for
NOT_IN_MEMORY = "no array holds `index`"


# -- range
@vk.kernel(over="y")
def ranges(x: vk.In[T, "N"], y: vk.Out[T, "N"], trips: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    n = x[i]
    count = 0
    for k in range(n):
        n = 1  # the bound has been evaluated already
        k += 50  # doesn't affect the next iteration
        count += 1
    trips[i] = count
    j = x[i] - x[i]
    for j in range(x[i]):
        pass
    y[i] = j


case("range()", "`range(n)` if the body assigns n and the loop variable; the loop variable after the loop", INTEGERS, ranges,
     lambda t: (few(t, 5, 6, 1, 2, 40),), lambda x: (x - x.dtype.type(1), x.astype(np.int32)))  # fmt: skip


@vk.kernel(over="y")
def counts_down(x: vk.In[T, "N"], y: vk.Out[T, "N"], trips: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    count = 0
    last = x[i]
    for last in range(x[i], 0, -2):
        count += 1
    y[i] = last
    trips[i] = count


case("range()", "`range(n, 0, -2)` and the loop variable after the loop", SIGNED, counts_down, lambda t: (few(t, 5, 6, 1, 0, -3),),
     lambda x: (np.where(x > 0, 2 - x % 2, x).astype(x.dtype), ((np.maximum(x, 0) + 1) // 2).astype(np.int32)))  # fmt: skip
case("range()", "counting down with unsigned integers is rejected", UNSIGNED, counts_down, several,
     Refused(("can't count down", "vk.i")))  # fmt: skip


@vk.kernel(over="y")
def range_of(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    count = 0
    for k in range(x[i]):
        count += 1
    y[i] = count


case(
    "range()", "floats and bools are rejected", (*BOOL, *FLOATS), range_of, several, Refused(("range takes integers",))
)


@vk.kernel(over="y")
def range_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    total = i - i
    for k in range(i, i + len(x) + 3_000_000_000, 1_000_000_000):
        total += k
    y[i] = total


case("range()", "`index` beyond 32 bits", INDEX, range_of_index, lambda t: (np.zeros(4, np.int32),),
     lambda x: np.array([sum(range(i, i + 3_000_000_004, 10**9)) for i in range(4)]))  # fmt: skip


# -- and, or, not
@vk.kernel(over="y", debug=True)
def short_circuit(x: vk.In[T, "N"], y: vk.Out[vk.boolean, "N"], z: vk.Out[vk.boolean, "N"], w: vk.Out[vk.boolean, "N"]):
    i = vk.global_id(0)
    y[i] = i > 0 and x[i - 1] != x[i]
    z[i] = i == 0 or x[i - 1] == x[i]
    w[i] = not x[i]


def expected_short_circuit(x: Any) -> Any:
    with np.errstate(all="ignore"):
        different = np.concatenate([[False], x[:-1] != x[1:]])
        return different, ~different, x == 0


case("and, or, not", "`i > 0 and x[i - 1] != x[i]` never reads x[-1] (`debug=True` would report it); `not x[i]` "
     "is `x[i] == 0`",
     ALL, short_circuit, lambda t: (few(t, 0, 1, 1, 0, 3),), expected_short_circuit)  # fmt: skip


@vk.kernel(groups=1, local=64)
def and_of_slices(x: vk.In[T, "M N"], y: vk.Out[vk.i32, "M"]):
    row = x[0, :]
    y[0] = vk.workgroup().any(row == row and row != row)


case("and, or, not", "operands that are slices are rejected", ALL, and_of_slices, lambda t: (np.zeros((2, 3), array_type(t)),),
     Refused(("neither true nor false", "with & and |")))  # fmt: skip


@vk.kernel(over="y")
def truth_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.boolean, "N"]):
    i = vk.global_id(0)
    y[i] = not (i > 0 and i < 3)


case("and, or, not", "comparisons of `index`", INDEX, truth_of_index, lambda t: (np.zeros(5, np.int32),),
     lambda x: ~((np.arange(5) > 0) & (np.arange(5) < 3)))  # fmt: skip


# -- barriers and collectives
@vk.kernel(groups=2, local=64)
def sums(x: vk.In[T, "N"], y: vk.Out[T, "2"], z: vk.Out[T, "2"]):
    wg = vk.workgroup()
    i = vk.local_id(0)
    mine = x.get(i, pad=0)
    y[vk.group_id(0)] = wg.max(mine)
    if vk.group_id(0) == 0 and len(x) > 3:
        s = vk.shared(x.dtype, 64)
        s[i] = mine
        vk.barrier()
        z[0] = s[(i + 1) % 64] if i == 2 else s[3]
    else:
        z[vk.group_id(0)] = wg.min(mine)


def expected_sums(x: Any) -> Any:
    zero = x.dtype.type(0)
    return np.array([max(x.max(), zero)] * 2, x.dtype), np.array([x[3], min(x.min(), zero)], x.dtype)


case("barriers, collectives", "a barrier under `vk.group_id(0) == 0 and len(x) > 3`, which is uniform", NUMBERS, sums,
     lambda t: (few(t, 3, 1, 100, 7, 2, 0.5),), expected_sums)  # fmt: skip


@vk.kernel(groups=1, local=64)
def votes(x: vk.In[T, "N"], y: vk.Out[T, "2"]):
    wg = vk.workgroup()
    mine = x.get(vk.local_id(0), pad=False)
    y[0] = wg.any(mine)
    y[1] = wg.all(mine)


case("barriers, collectives", "`any` and `all` of bools", BOOL, votes, lambda t: (few(t, 1, 0, 1),),
     lambda x: np.array([True, False]))  # fmt: skip


@vk.kernel(groups=1, local=64)
def divergent(x: vk.InOut[T, "N"]):
    i = vk.local_id(0)
    if x[i] == x[0]:
        vk.barrier()
    x[i] = x[0]


case("barriers, collectives", "a barrier under a condition on `x[local_id(0)]` is rejected; the error shows the "
     "chain of causes", ALL,
     divergent, lambda t: (np.zeros(64, array_type(t)),),
     Refused(("not every invocation", "this condition differs", "local_id(0)")))  # fmt: skip


@vk.kernel(groups=1, local=64)
def divergent_by_index(x: vk.InOut[vk.i32, "N"]):
    if vk.global_id(0) >= len(x):
        return
    vk.barrier()
    x[0] = 1


case("barriers, collectives", "a barrier after a divergent `return` is rejected", INDEX, divergent_by_index,
     lambda t: (np.zeros(3, np.int32),), Refused(("some invocations leave here", ".get", ".put")))  # fmt: skip


# -- aliasing
@vk.kernel(groups=1, local=1)
def copies_along(x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    for j in range(len(x)):
        y[j] = x[j]


def overlapping(kernel: Any, a: Any) -> None:
    kernel(a[:-1], a[1:])


def expected_copies_along(a: Any) -> None:
    a[1:] = a[0]


case("aliasing", "`y[j] = x[j]` for ascending j in one invocation, with y one element after x in the same "
     "memory, propagates the first value",
     ALL, copies_along, lambda t: (few(t, 1, 0, 3, 4, 5, 6, 7, 8, 9),), expected_copies_along, launch=overlapping)  # fmt: skip


@vk.kernel(over="y")
def in_place(x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = max(x[i], y[i]) if x[i] == y[i] else x[i]


case("aliasing", "the same array as input and output of an `over=` kernel", NUMBERS, in_place,
     lambda t: (few(t, *range(100)),), lambda a: None, launch=lambda kernel, a: kernel(a, a))  # fmt: skip
not_for("aliasing", INDEX, NOT_IN_MEMORY)


# -- uninitialized memory
@vk.kernel(groups=1, local=32, sanitize=True)
def reads_what_nobody_wrote(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.local_id(0)
    s = vk.shared(x.dtype, 64)
    s[i] = x[i]
    vk.barrier()
    y[i] = s[i + 32]


case("uninitialised memory", "`sanitize=True` reports reads of shared memory that no invocation wrote", ALL,
     reads_what_nobody_wrote, lambda t: (np.ones(32, array_type(t)),),
     Raised(SanitizerError, ("uninitialised_read",)))  # fmt: skip


@vk.kernel(over="y")
def reads_an_empty_array(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    s = vk.local(x.dtype, 4)
    y[i] = s[0]
    s[0] = x[i]


case("uninitialised memory", "a local array that is certainly read before it is written is rejected", ALL,
     reads_an_empty_array, several, Refused(("a local array is read", "s[i] = 0")))  # fmt: skip


@vk.kernel(groups=1, local=32, debug=True)
def shows_what_nobody_wrote(x: vk.In[T, "N"], y: vk.Out[T, "N"], z: vk.Out[T, "N"]):
    i = vk.local_id(0)
    s = vk.shared(x.dtype, 32)
    if i % 2 == 0:
        s[i] = x[i]
        z[i] = x[i]
    vk.barrier()
    y[i] = s[i]


def every_second(x: Any) -> Any:
    expected = np.where(np.arange(32) % 2 == 0, x.astype(np.float32), np.nan).astype(x.dtype)
    return expected, expected


case("uninitialised memory", "with `debug=True`, unwritten elements of shared memory and allocated Outs are "
     "NaN", FLOATS,
     shows_what_nobody_wrote, lambda t: (np.ones(32, array_type(t)),), every_second)  # fmt: skip
not_for("uninitialised memory", INDEX, NOT_IN_MEMORY)


# -- out of bounds
@vk.kernel(over="y")
def safe(x: vk.In[T, "N"], y: vk.Out[T, "M"], z: vk.InOut[T, "K"]):
    i = vk.global_id(0)
    y[i] = x.get(i - 2, pad=1)
    z.put(i - 2, x.get(0, pad=0))


def safe_operands(dtype: DType) -> tuple[Any, ...]:
    return few(dtype, 1, 0, 3), np.zeros(9, array_type(dtype)), np.zeros(4, array_type(dtype))


def expected_safe(x: Any, y: Any, z: Any) -> None:
    y[:] = few_like(x, [1, 1, *x, 1, 1, 1, 1])
    z[:] = x[0]


def few_like(x: Any, numbers: Any) -> Any:
    return np.array([float(n) for n in numbers]).astype(x.dtype)


case("out of bounds", "`x.get(i, pad=1)` and `z.put(i, v)` below and above the bounds of the array", ALL, safe, safe_operands,
     expected_safe)  # fmt: skip


@vk.kernel(over="y", debug=True)
def past_the_end(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i + 1]


case("out of bounds", "`x[i + 1]` with `debug=True` raises an error with kernel, line, invocation, index and "
     "shape", ALL, past_the_end,
     lambda t: (np.ones(70, array_type(t)),),
     Raised(vk.BoundsError, ("index 70 is outside x", "shape (70,)", "past_the_end", "flow.py")))  # fmt: skip


@vk.kernel(over="y", debug=True)
def index_past_the_end(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i + 5_000_000_000]


case("out of bounds", "an `index` beyond 32 bits is out of bounds and doesn't wrap", INDEX, index_past_the_end,
     lambda t: (np.ones(3, np.int32),), Raised(vk.BoundsError, ("index 500000000",)))  # fmt: skip


# -- negative indices
@vk.kernel(groups=1, local=1, debug=True)
def last_ones(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    for j in range(len(x)):
        y[j] = x[-1]
    y[-2] = x[-3]


def expected_last_ones(x: Any) -> Any:
    made = np.full_like(x, x[-1])
    made[-2] = x[-3]
    return made


@vk.kernel(over="y", debug=True)
def negative_at_run_time(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i - 1]


case("negative indices", "`x[-1]` is the last element", ALL, last_ones, lambda t: (few(t, 0, 1, 2, 3, 4),),
     expected_last_ones)  # fmt: skip
case("negative indices", "`x[i - 1]` with i = 0 is out of bounds", ALL, negative_at_run_time,
     lambda t: (few(t, 0, 1, 2, 3, 4),), Raised(vk.BoundsError, ("index -1 is outside x",)))  # fmt: skip
not_for("negative indices", INDEX, "`index` is the type of the indices in all cases of this rule")


# -- globals and closures
def captures(dtype: DType) -> Any:
    constant = 3
    number = dtype.numpy.type(constant)
    flags = (constant, 2)

    @vk.kernel(over="y", strict=True)
    def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = max(number, x[i]) if flags[1] == constant - 1 else x[i]

    def rebind(value: int) -> None:
        nonlocal number
        number = dtype.numpy.type(value)

    kernel.rebind = rebind
    return kernel


def launched_twice(kernel: Any, x: Any) -> Any:
    first = kernel(x)
    kernel.rebind(5)
    return first, kernel(x)


case("globals and closures", "a captured number of the type and a captured tuple; rebinding them recompiles the kernel",
     tuple(t for t in NUMBERS if t.name != "bf16"), captures, lambda t: (few(t, 1, 4, 7),),
     lambda x: (np.maximum(x, x.dtype.type(3)), np.maximum(x, x.dtype.type(5))), launch=launched_twice)  # fmt: skip
TABLE_OF_NUMBERS = [1, 2, 3]


@vk.kernel(over="y")
def captures_a_list(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = TABLE_OF_NUMBERS[0] if x[i] else x[i]


case("globals and closures", "capturing a list is rejected", ALL, captures_a_list, several,
     Refused(("TABLE_OF_NUMBERS is a list", "can change")))  # fmt: skip
not_for("globals and closures", INDEX, "captured integers are weakly typed, or have a NumPy type")


# -- augmented assignment
@vk.kernel(groups=1, local=1)
def accumulates(x: vk.In[T, "N"], y: vk.InOut[T, "M"]):
    for j in range(len(x)):
        y[0] += x[j]
        y[1] -= x[j]
        y[2] *= 1


def expected_accumulates(x: Any, y: Any) -> None:
    with np.errstate(all="ignore"):
        for value in x:
            y[0] += value
            y[1] -= value


case("`+=` on memory", "`y[0] += x[j]` in one invocation", NUMBERS, accumulates,
     lambda t: (few(t, 1, 2, 3, 100, 27), few(t, 0, 100, 5)), expected_accumulates)  # fmt: skip


@vk.kernel(groups=1, local=1)
def accumulates_bools(x: vk.In[T, "N"], y: vk.InOut[T, "M"]):
    for j in range(len(x)):
        y[0] |= x[j]
        y[1] &= x[j]


def expected_bools(x: Any, y: Any) -> None:
    y[0], y[1] = x.any(), x.all() and y[1]


case("`+=` on memory", "`y[0] |= x[j]` for bools", BOOL, accumulates_bools, lambda t: (few(t, 0, 1, 0), few(t, 0, 1)),
     expected_bools)  # fmt: skip
not_for("`+=` on memory", INDEX, NOT_IN_MEMORY)


# -- print
@vk.kernel(over="x", debug=False)
def prints(x: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    print("element", x[i], f"and again {x[i]}")


def printed(kernel: Any, *operands: Any) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        kernel(*operands)
        vk.synchronize()
    return text.getvalue()


def expected_print(x: Any) -> str:
    value = x[0].item() if x.dtype.name != "bfloat16" else float(x[0])
    return f"element {value} and again {value}\n"


case("print", "text and a value, without debug", ALL, prints, lambda t: (few(t, 3),), expected_print, launch=printed)


@vk.kernel(over="x")
def prints_index(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    print(f"{i + 4_000_000_000}")


case("print", "a value of type `index`", INDEX, prints_index, lambda t: (np.zeros(1, np.int32),), lambda x: "4000000000\n",
     launch=printed)  # fmt: skip


# -- source not available
def without_source(dtype: DType) -> Any:
    scope: dict[str, Any] = {"vk": vk, "T": T}
    text = "def typed_at_the_prompt(x: vk.InOut[T, 'N']):\n    x[0] = x[1]\n"
    exec(compile(text, "<stdin>", "exec"), scope)  # noqa: S102  as an interactive prompt does
    return vk.kernel(over="x")(scope["typed_at_the_prompt"])


case("source not available", "the error for a kernel typed at the prompt suggests a file or a notebook", ALL, without_source,
     lambda t: (np.zeros(3, array_type(t)),), Refused(("put the kernel into a file", "notebook")))  # fmt: skip
not_for("source not available", INDEX, "the rule doesn't depend on a type")
