"""Lower early returns: produce the normal form, in which the only `return` is the last operation of the function.

In this module, an operation "returns" if a `return` is nested in it. `break` and `continue` are kept. A counted `for`
stays a `for`: a `return` inside it becomes a `break` that sets a flag.

Outside of loops, the code after an early return moves into the branch that continues; no flag is needed::

    if %c {                           if %c {
      return                            yield
    } else {              ->          } else {
      yield                             store %x, %i, %v
    }                                   yield
    store %x, %i, %v                  }
    return                            return

A return inside a loop sets a loop-carried flag, and makes the returned values loop-carried, too::

    for %lo, %hi, %step {             %left = for %lo, %hi, %step, %false : bool (%i: index, %f: bool) {
      if %c {                           if %c {
        return                            break %true
      } else {            ->            } else {
        yield                             yield
      }                                 }
      continue                          continue %f
    }                                 }
    store %x, %k, %v                  if %left {
    return                              yield
                                      } else {
                                        store %x, %k, %v
                                        yield
                                      }
                                      return

Some values don't exist on all paths. The original results of a loop are `poison` if a return has ended it, and the
returned values are `poison` if nothing has been returned. The test of the flag prevents their use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.rewrite import LOOPS, completes, exits_of, replace_uses
from vkjit.ir.types import BOOL, Type

__all__ = ["LowerExits"]


@dataclass(frozen=True, slots=True)
class LowerExits:
    """Rewrite functions to have a single `return`, at their end."""

    name: ClassVar[str] = "lower_exits"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _Lowering(function).run()
        return module


@dataclass(frozen=True, slots=True)
class _Ending:
    """The kind of terminator that a region outside of loops must end in. There are three, by `form`:

    - "function": `return values`, for the function's body;
    - "returns": `yield values`, for a region in which all paths return the values;
    - "state": `yield normals, flag, values`, for a region in which some paths return. If the flag is true, the function
      has returned `values`, and `normals` are poison. Otherwise `normals` are the results of the original `yield`, and
      `values` are poison. The field `normals` has the types of these results.
    """

    form: str
    normals: tuple[Type, ...] = ()

    @property
    def inner(self) -> _Ending:
        """The ending of the regions of an `if` whose results are passed on by the terminator that follows it."""
        return _RETURNS if self.form == "function" else self


_FUNCTION = _Ending("function")
_RETURNS = _Ending("returns")


class _Lowering:
    """The lowering of one function.

    `types` are the types of the returned values. `returning` are the operations in which a `return` is nested.
    `replaced` maps results of lowered operations to the values that replace them.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.types = list(function.result_types)
        self.returning: set[Op] = set()
        self.replaced: dict[Value, Value] = {}
        self._find(function.body)

    def _find(self, region: Region) -> bool:
        """Fill `returning`; True if the region contains a `return`."""
        has_return = False
        for op in region.ops:
            nested = [self._find(inner) for inner in op.regions]
            if any(nested):
                self.returning.add(op)
            has_return = has_return or any(nested) or op.name == "return"
        return has_return

    def run(self) -> None:
        body = self.function.body
        if not self.returning and body.terminator.name == "return":
            return
        source, body.ops = body.ops, []
        self.sequence(source, _FUNCTION, body)
        replace_uses(body, self.replaced)

    # -- outside of loops

    def sequence(self, ops: Sequence[Op], ending: _Ending, into: Region) -> None:
        """Append lowered operations to the region `into`, which then has the terminator that `ending` describes."""
        builder = Builder(into)
        for position, op in enumerate(ops):
            builder.loc = op.loc
            if op in self.returning:
                self.structured(op, ops[position + 1 :], ending, builder)
                return
            if op.name in ("return", "yield", "unreachable"):
                self.lower_terminator(op, ending, builder)
                return
            into.ops.append(op)

    def lower_terminator(self, op: Op, ending: _Ending, builder: Builder) -> None:
        """Emit the terminator that `ending` describes, in place of the original terminator `op`.

        No operation before `op` in its region returns.
        """
        if op.name == "return":
            self.emit_return(op.operands, ending, builder)
        elif op.name == "yield":
            # The region doesn't return, so the form is "state", and the flag is false.
            flag = builder.const(False, BOOL)
            builder.op("yield", *op.operands, flag, *self.poison(self.types, builder))
        elif ending.form == "function":
            # `op` is `unreachable`. In the normal form, a function's body ends in `return`.
            builder.op("return", *self.poison(self.types, builder))
        else:
            # `unreachable` may end any other region.
            builder.region.ops.append(op)

    def emit_return(self, values: Sequence[Value], ending: _Ending, builder: Builder) -> None:
        """Emit the terminator that `ending` describes, for a region in which the function returns `values`."""
        if ending.form == "function":
            builder.op("return", *values)
        elif ending.form == "returns":
            builder.op("yield", *values)
        else:
            normals = self.poison(ending.normals, builder)
            builder.op("yield", *normals, builder.const(True, BOOL), *values)

    def pass_on(self, results: Sequence[Value], ending: _Ending, builder: Builder) -> None:
        """Emit the terminator that follows a lowered `if` and passes on its results, `results`."""
        builder.op("return" if ending.form == "function" else "yield", *results)

    def poison(self, types: Sequence[Type], builder: Builder) -> list[Value]:
        return [builder.emit("poison", type=type) for type in types]

    def structured(self, op: Op, following: Sequence[Op], ending: _Ending, builder: Builder) -> None:
        """Lower an operation that returns, together with `following`, the operations after it in its region."""
        continues = completes(op)  # False if no path leads to the operations that follow
        if op.name in LOOPS:
            flag, values = self.loop(op, builder)
            if not continues:
                self.emit_return(values, ending, builder)
            else:
                self.guarded(flag, values, following, ending, builder)
            return
        # the regions from which control reaches the operations that follow
        yielding = [region for region in op.regions if region.terminator.name == "yield"]
        if len(yielding) == 2:
            flag, values = self.both_yield(op, builder)
            self.guarded(flag, values, following, ending, builder)
        else:
            self.absorb(op, yielding, following, ending, builder)

    def absorb(
        self, op: Op, yielding: list[Region], following: Sequence[Op], ending: _Ending, builder: Builder
    ) -> None:
        """Lower an `if` with at most one region that ends in `yield`; move the code after the `if` into this region.

        `yielding` contains the region, if there is one, and `following` is the code after the `if`.
        """
        for region in op.regions:
            source, region.ops = region.ops, []
            if region in yielding:
                # `following` takes the place of the `yield`, and uses its operands instead of the results of the `if`.
                self.replaced.update(zip(op.results, source[-1].operands, strict=True))
                source = [*source[:-1], *following]
            self.sequence(source, ending.inner, region)
        # The regions now end as `ending.inner` describes; the `if` gets the results that they yield.
        types = [*ending.normals, BOOL, *self.types] if ending.form == "state" else self.types
        op.results = [Value(type, op, number) for number, type in enumerate(types)]
        builder.region.ops.append(op)
        self.pass_on(op.results, ending, builder)

    def both_yield(self, op: Op, builder: Builder) -> tuple[Value, list[Value]]:
        """Lower an `if` in which both regions end in `yield`, and a `return` is nested deeper in at least one of them.

        The `if` gets the flag and the returned values as additional results. Return these results: (flag, values).
        """
        state = _Ending("state", tuple(r.type for r in op.results))
        for region in op.regions:
            source, region.ops = region.ops, []
            self.sequence(source, state, region)
        builder.region.ops.append(op)
        return self.extend_results(op)

    def guarded(
        self, flag: Value, values: list[Value], following: Sequence[Op], ending: _Ending, builder: Builder
    ) -> None:
        """Lower the operations `following` after an operation that may have returned: they run only if `flag` is false.

        `values` are the returned values if the flag is true.
        """
        # If only a terminator follows, no `if` is needed in two cases: a `yield` passes on the flag and the values as
        # they are, and a `return` without values is the same for either value of the flag.
        next_op = following[0]
        if ending.form == "state" and next_op.name == "yield":
            builder.op("yield", *next_op.operands, flag, *values)
            return
        if ending.form != "state" and next_op.name == "return" and not self.types:
            self.emit_return((), ending, builder)
            return
        leave, stay = Region(), Region()
        inner = ending.inner
        self.emit_return(values, inner, Builder(leave, builder.loc))
        self.sequence(following, inner, stay)
        types = [*ending.normals, BOOL, *self.types] if ending.form == "state" else list(self.types)
        branch = builder.op("if", flag, types=types, regions=[leave, stay])
        self.pass_on(branch.results, ending, builder)

    def extend_results(self, op: Op) -> tuple[Value, list[Value]]:
        """Add the flag and the returned values to the results of an operation. Return (flag, returned values)."""
        start = len(op.results)
        op.results += [Value(type, op, start + number) for number, type in enumerate([BOOL, *self.types])]
        op.results[start].name = "returned"
        return op.results[start], op.results[start + 1 :]

    # -- loops

    def loop(self, op: Op, builder: Builder) -> tuple[Value, list[Value]]:
        """Lower a loop that returns: make the flag and the returned values loop-carried.

        Return the loop's results for them: (flag, values).
        """
        body = op.regions[0]
        original = [r.type for r in op.results]
        op.operands += [builder.const(False, BOOL), *self.poison(self.types, builder)]
        start = len(body.args)
        extra = [Value(type, body, start + number) for number, type in enumerate([BOOL, *self.types])]
        body.args += extra
        for exit in list(exits_of(body)):
            exit.operands += extra
        self.in_loop(body, original)
        builder.region.ops.append(op)
        return self.extend_results(op)

    def in_loop(self, region: Region, results: list[Type]) -> None:
        """Replace each return in a loop's body by a `break`; `results` are the types of the loop's original results."""
        source, region.ops = region.ops, []
        builder = Builder(region)
        for op in source:
            builder.loc = op.loc
            if op.name == "return":
                values = [*self.poison(results, builder), builder.const(True, BOOL), *op.operands]
                builder.op("break", *values)
            elif op not in self.returning:
                region.ops.append(op)
            elif op.name in LOOPS:
                always_returns = not completes(op)
                flag, values = self.loop(op, builder)
                if self.break_on(flag, values, results, builder, always_returns):
                    return
            else:
                region.ops.append(op)
                for inner in op.regions:
                    self.in_loop(inner, results)

    def break_on(self, flag: Value, values: list[Value], results: list[Type], builder: Builder, always: bool) -> bool:
        """Emit a `break` from the outer loop that is taken if the inner loop, lowered just before, has returned.

        `flag` and `values` are the results that `loop` returned for the inner loop; the `break` passes them on.
        `results` are the types of the outer loop's original results. `always` is True if the inner loop never ends
        without returning; then the `break` is unconditional and terminates the region. Returns `always`.
        """
        if always:
            builder.op("break", *self.poison(results, builder), flag, *values)
            return True
        leave, stay = Region(), Region()
        leave_builder = Builder(leave, builder.loc)
        leave_builder.op("break", *self.poison(results, leave_builder), flag, *values)
        Builder(stay, builder.loc).op("yield")
        builder.op("if", flag, types=[], regions=[leave, stay])
        return False
