"""Statements for control flow: branches, loops (operations `for` and `loop`), calls, and exits from branches and loops.

Loops terminate by construction: the range of a `for` is short, and a `loop` carries a counter that ends it. In uniform
control flow, the condition or the bounds of a statement may be uniform over the workgroup (`uniform` is True); then the
control flow in its regions is uniform, too. Otherwise, it is divergent.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Region, Value
from vkjit.ir.types import BOOL, INDEX, Scalar, Type

from .builder import Loop, Maker, statement

__all__ = ["finish"]

I32 = Scalar(dtypes.i32)


def _flow(m: Maker, uniform: bool) -> AbstractContextManager[None]:
    """Context manager for filling the regions of a statement.

    Control flow in them is divergent unless `uniform` is True.
    """
    return nullcontext() if uniform else m.divergent()


def _condition(m: Maker, uniform: bool) -> Value:
    """Return a condition; if `uniform` is True, one that is uniform over the workgroup."""
    if m.chance(0.5) and not uniform:
        return m.value(BOOL)
    type = m.type(["int", "uint", "index"], vectors=False)
    left = m.value(type, uniform=uniform)
    return m.builder.emit(m.pick(["lt", "ge", "eq", "ne"]), left, m.value(type, uniform=uniform))


def _types(m: Maker) -> list[Type]:
    """Return random types for the results of a branch or the carried values of a loop."""
    return [m.any_type() for _ in range(m.pick([0, 1, 1, 2, 2, 3]))]


def finish(m: Maker) -> bool:
    """Sometimes emit an exit, if one is allowed here: `return`, or `break` or `continue` of the innermost loop.

    Returns True if an exit was emitted.
    """
    choice = m.draw(0, 6)
    if choice == 0 and m.returnable:
        m.builder.op("return", *(m.value(t) for t in m.results))
        return True
    if choice not in (1, 2) or not m.loops:
        return False
    loop = m.loops[-1]
    values = [m.value(t) for t in loop.types]
    if choice == 1:
        m.builder.op("break", *values, *loop.counter)
    else:
        m.builder.op("continue", *values, *_advanced(m, loop))
    return True


def _advanced(m: Maker, loop: Loop) -> list[Value]:
    """Return a list with the decremented counter of a loop, empty if it has none."""
    return [m.builder.emit("sub", v, m.builder.const(1, I32)) for v in loop.counter]


@statement(5, nested=True)
def _branch(m: Maker) -> bool:
    """An `if` with random results; each side ends in `yield` or an exit. Returns False if both sides exit."""
    uniform = m.uniform and m.chance(0.4)
    condition, types = _condition(m, uniform), _types(m)
    regions = [Region(), Region()]
    sizes = [m.draw(1, 4), m.pick([0, 1, 2, 3])]

    def end() -> None:
        if not finish(m):
            m.builder.op("yield", *(m.value(t) for t in types))

    with _flow(m, uniform):
        for region, size in zip(regions, sizes, strict=True):
            m.fill(region, size, end)
    yields = [region.terminator.name == "yield" for region in regions]
    branch = m.builder.op("if", condition, types=types if any(yields) else [], regions=regions)
    for result in branch.results:
        m.keep(result)
    return any(yields)


def _bounds(m: Maker, uniform: bool) -> tuple[Value, Value, Value]:
    """Return lower bound, upper bound and step of a `for` with at most a few iterations.

    Covers constant and variable bounds, bounds at the limits of the type, and negative and zero steps; a `for` with
    step 0 has no iterations. If `uniform` is True, the values are uniform over the workgroup.
    """
    b = m.builder
    type = m.type(["int", "uint", "index"], vectors=False) if m.chance(0.6) else m.pick([I32, INDEX])
    assert isinstance(type, Scalar)
    signed, bits = type.dtype.is_signed, type.dtype.bits
    variant = m.draw(0, 11)
    if variant > 9 and signed:  # a constant start and a clamped end
        start = m.draw(0, 6)
        end = b.emit("max", m.value(type, uniform=uniform), b.const(start - 4, type))
        end = b.emit("min", end, b.const(start + m.draw(-3, 4), type))
        return b.const(start, type), end, b.const(m.pick([-1, -1, -2, 1]), type)
    if variant < 3:  # constant bounds
        low, step = m.pick([0, 0, 1, 3]), m.pick([1, 1, 2, 3])
        return b.const(low, type), b.const(low + m.draw(0, 5), type), b.const(step, type)
    if variant == 3:  # at the upper limit of the type
        maximum = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
        low = maximum - m.draw(0, 4)
        return b.const(low, type), b.const(maximum, type), b.const(m.pick([1, 2, 3, 5]), type)
    if variant == 4 and signed:  # at the lower limit, counting down
        minimum = -(1 << (bits - 1))
        return b.const(minimum + m.draw(0, 4), type), b.const(minimum, type), b.const(m.pick([-1, -2, -3]), type)
    high = b.emit("and", m.value(type, uniform=uniform), b.const(3, type))  # variable, from 0 to 3
    if variant == 5:  # the step is 0 or 1
        return b.const(0, type), high, b.emit("and", m.value(type, uniform=uniform), b.const(1, type))
    if variant < 8 or not signed:
        return b.const(m.pick([0, 1, 2]), type), high, b.const(m.pick([1, 1, 2, 3]), type)
    # counting down from a variable bound; there are no iterations if the step is 1
    return high, b.const(m.pick([-1, 0, -3]), type), b.const(m.pick([-1, -1, -2, 1]), type)


@statement(3, nested=True)
def _counted(m: Maker) -> None:
    """A `for` with random loop-carried values."""
    uniform = m.uniform and m.chance(0.5)
    low, high, step = _bounds(m, uniform)
    types = _types(m)
    initial = [m.value(t) for t in types]
    region = Region([low.type, *types])
    if uniform:
        m.uniform_values.add(region.args[0])

    def end() -> None:
        m.builder.op("continue", *(m.value(t) for t in types))

    with _flow(m, uniform):
        m.loops.append(Loop(types, []))
        m.fill(region, m.draw(1, 4), end)
        m.loops.pop()
    for_op = m.builder.op("for", low, high, step, *initial, types=types, regions=[region])
    for result in for_op.results:
        m.keep(result)


@statement(1.5, nested=True)
def _open_loop(m: Maker) -> None:
    """A `loop` whose last carried value is a counter that ends it after at most a few iterations."""
    uniform = m.uniform and m.chance(0.3)
    types = _types(m)
    start = m.builder.const(m.pick([0, 1, 3, 5]), I32)
    if not uniform and m.chance(0.5):
        start = m.builder.emit("and", m.value(I32), m.builder.const(3, I32))
    initial = [*(m.value(t) for t in types), start]
    region = Region([*types, I32])
    counter = region.args[-1]
    loop = Loop(types, [counter])
    with m.builder.at(region):
        _leave_when_zero(m.builder, region.args, counter)

    def end() -> None:
        m.builder.op("continue", *(m.value(t) for t in types), *_advanced(m, loop))

    with _flow(m, uniform):
        m.loops.append(loop)
        m.fill(region, m.draw(1, 4), end)
        m.loops.pop()
    loop_op = m.builder.op("loop", *initial, types=[*types, I32], regions=[region])
    for result in loop_op.results:
        m.keep(result)


@statement(1.5, nested=True)
def _until(m: Maker) -> None:
    """A `loop` with one `break`, at its end, with values from its body, that invocations reach at different times."""
    b, types = m.builder, _types(m)
    limit = b.emit(m.pick(["and", "min"]), m.value(I32), b.const(3, I32))
    start, step = m.pick([(0, 1), (3, -1), (6, -2)])
    region = Region([*types, I32])
    counter = region.args[-1]

    def end() -> None:
        following = m.builder.emit("add", counter, m.builder.const(step, I32)) if m.chance(0.8) else None
        values, compared = [m.value(t) for t in types], following or counter
        bounded = m.builder.emit("max", limit, m.builder.const(-1, I32))
        done = m.builder.emit("gt" if step > 0 else "le", compared, bounded)
        leave, stay = Region(), Region()
        Builder(leave).op("break", *values, compared)
        Builder(stay).op("yield")
        m.builder.op("if", done, types=[], regions=[leave, stay])
        last = following or m.builder.emit("add", counter, m.builder.const(step, I32))
        m.builder.op("continue", *(m.value(t) for t in types), last)

    with m.divergent():  # there are no other exits
        m.fill(region, m.draw(1, 4), end)
    initial = [*(m.value(t) for t in types), b.const(start, I32)]
    for result in b.op("loop", *initial, types=[*types, I32], regions=[region]).results:
        m.keep(result)


def _leave_when_zero(builder: Builder, carried: list[Value], counter: Value) -> None:
    """Emit a `break` with the carried values, taken if the counter is 0 or less."""
    leave, stay = Region(), Region()
    Builder(leave).op("break", *carried)
    Builder(stay).op("yield")
    done = builder.emit("le", counter, builder.const(0, I32))
    builder.op("if", done, types=[], regions=[leave, stay])


@statement(3, lambda m: bool(m.functions))
def _call(m: Maker) -> None:
    """A call of a device function."""
    callee = m.pick(m.functions)
    operands = [m.value(p.type) for p in callee.params]
    call = m.builder.op("call", *operands, types=list(callee.result_types), callee=callee.name)
    for result in call.results:
        m.keep(result)
