"""Control flow that is nested about a hundred levels deep, beyond what drivers are usually tested with.

The conditions compare a value with the number of the level, so that invocations leave at different levels.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Region, Value
from vkjit.ir.types import INDEX, Scalar

from .builder import Maker, Place, statement

__all__: list[str] = []

_I32 = Scalar(dtypes.i32)


def _targets(m: Maker) -> list[Place]:
    """Return the arrays that statements may store to."""
    return [p for p in m.places if p.kind == "own"]


def _store(m: Maker, targets: list[Place], number: int) -> None:
    """Store a constant to some array, so that the branch can't become a select."""
    if targets and m.chance(0.5):
        place = targets[number % len(targets)]
        m.builder.op("store", place.array, *place.index(m), m.constant(place.element))


@statement(0.25, lambda m: m.depth > 1, nested=True)
def _deep(m: Maker) -> None:
    """One of the forms in which programs nest branches deeply. It counts as several statements."""
    m.fuel -= 4
    levels = m.draw(66, 110)
    value = _level_of_exit(m, levels)
    forms = [_nested, _elif_chain, _continues]
    form = m.pick([*forms, _returns] if m.returnable else forms)
    with m.divergent() if form is not _returns else m.inside(m.builder.region):
        result = form(m, value, levels)
    if result is not None:
        m.keep(result)
        m.probe(m.builder.cast(result, dtypes.i64))


def _level_of_exit(m: Maker, levels: int) -> Value:
    """Return a value from 0 to `levels` + 3, which mostly differs between invocations."""
    b = m.builder
    value = b.cast(m.value(m.pick([_I32, INDEX])), INDEX)
    if m.row is not None:
        value = b.emit("add", value, b.emit("mul", m.row, b.index(m.pick([1, 7, 37]))))
    return b.cast(b.emit("floormod", value, b.index(levels + 4)), _I32)


def _nested(m: Maker, value: Value, levels: int) -> Value:
    """Branches in branches, each with code before and after the inner one."""
    b, targets = m.builder, _targets(m)

    def level(number: int, carried: Value) -> Value:
        if number == levels:
            return carried
        yes, no = Region(), Region()
        with m.inside(yes):
            _store(m, targets, number)
            inner = level(number + 1, b.emit("add", carried, b.const(number, _I32)))
            _store(m, targets, number + 1)
            b.op("yield", b.emit("xor", inner, carried) if m.chance(0.5) else inner)
        with b.at(no):
            b.op("yield", carried)
        condition = b.emit("ge", value, b.const(number, _I32))
        regions = [yes, no]
        if m.chance(0.2):
            condition, regions = b.emit("not", condition), [no, yes]
        return b.op("if", condition, types=[_I32], regions=regions).result

    return level(0, value)


def _elif_chain(m: Maker, value: Value, levels: int) -> Value:
    """Branches in the other region of branches."""
    b, targets = m.builder, _targets(m)

    def level(number: int) -> Value:
        if number == levels:
            return b.const(-1, _I32)
        yes, no = Region(), Region()
        condition = b.emit("eq", value, b.const(number, _I32))
        with m.inside(yes):
            _store(m, targets, number)
            b.op("yield", b.emit("mul", value, b.const(number + 3, _I32)))
        with b.at(no):
            b.op("yield", level(number + 1))
        return b.op("if", condition, types=[_I32], regions=[yes, no]).result

    return level(0)


def _continues(m: Maker, value: Value, levels: int) -> Value:
    """A loop with guards that end in `continue`, or some in `break`."""
    b, targets = m.builder, _targets(m)
    body = Region([_I32, _I32])
    counter, carried = body.args
    breaks = m.chance(0.3)
    with m.inside(body):
        exit_level = b.emit("xor", value, counter)
        for number in range(levels):
            leave, stay = Region(), Region()
            with m.inside(leave):
                _store(m, targets, number)
                passed = b.emit("add", carried, b.const(number, _I32))
                b.op("break" if breaks and m.chance(0.2) else "continue", passed)
            with b.at(stay):
                b.op("yield")
            b.op("if", b.emit("eq", exit_level, b.const(number, _I32)), types=[], regions=[leave, stay])
        b.op("continue", b.emit("sub", carried, exit_level))
    iterations = b.emit("and", b.cast(m.value(INDEX), _I32), b.const(3, _I32))
    return b.op("for", b.const(0, _I32), iterations, b.const(1, _I32), value, types=[_I32], regions=[body]).result


def _returns(m: Maker, value: Value, levels: int) -> None:
    """Guards that return. Some invocations go on."""
    b, targets = m.builder, _targets(m)
    for number in range(levels):
        leave, stay = Region(), Region()
        with m.inside(leave):
            _store(m, targets, number)
            b.op("return", *(m.constant(t) for t in m.results))
        with b.at(stay):
            b.op("yield")
        b.op("if", b.emit("eq", value, b.const(number, _I32)), types=[], regions=[leave, stay])
