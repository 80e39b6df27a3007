"""The IR verifier: check all rules of the IR and report every violation, not only the first.

A module is valid if all of these hold.

 1. Names: each operation is a row of the op table.
 2. Signatures: number and types of operands and results, attributes, and number of regions are those of the row.
 3. Ownership: a result belongs to its operation, an argument to its region; no operation or region occurs twice.
 4. Visibility: an operand is defined earlier in the same region, is an argument of that region, or is visible at the
    enclosing operation. Values of other functions aren't used.
 5. Terminators: a region isn't empty; its last operation, and no other, is a terminator.
 6. `if`: the regions have no arguments, and end in `yield` with the types of the results, or in an exit. If neither
    region yields, there are no results.
 7. Loops: the body's arguments are the loop-carried values. In a `for`, they follow the induction variable, which has
    the type of the bounds. `continue` passes the next loop-carried values, `break` passes the results. The results of
    `for` have the types of the loop-carried values.
 8. `yield` ends a region of an `if` or of a tile operation; `break` and `continue` are inside a loop; `return` has the
    types of the function's results.
 9. An operation never completes if it is an `if` that exits in both regions, or a `loop` without `break`. It must be
    followed directly by `unreachable`, which occurs nowhere else. At the end of a function's body, `return` of poison
    may replace `unreachable`.
10. Arrays are parameters, allocations or results of `linear`, never results of control flow or operands of `select`.
11. Calls: the callee is in the module, takes and returns the types of the call, and no function is recursive.
12. The kernel has no results. Its attribute `local_size` is three positive ints.
13. Reports: the attribute `site` is the number of a site of the module.

There are three forms of the IR. The front end's output has the form "high" and follows the rules above. A module in the
form "normal" (after the pass `lower_exits`) also follows this rule:

14. `return` is the last operation of the function's body and occurs nowhere else.

A module in the form "primitive" (the input of the Vulkan code generator) also follows these rules:

15. There are no calls, and no functions besides the kernel.
16. Loads, stores and atomics access only linear arrays.
17. An elementwise operation has a SPIR-V instruction for the kind of its first operand.
"""

from __future__ import annotations

import functools

from ..errors import InternalError
from .core import Function, Module, Op, Region, Value
from .ops import OPS, OpInfo, OpName
from .printer import name_values, print_op
from .rewrite import completes
from .signature import signature_errors
from .types import Array, Scalar, Type, Vector

__all__ = ["verify", "violations"]

FORMS = ("high", "normal", "primitive")
_LOOPS: tuple[OpName, ...] = ("for", "loop")


def verify(module: Module, form: str = "high") -> None:
    """Raise InternalError listing all violations, if there are any. `form` is "high", "normal" or "primitive"."""
    errors = violations(module, form)
    if errors:
        listing = "\n".join(errors)
        raise InternalError(f"invalid IR ({form} form), {len(errors)} violations:\n{listing}")


def violations(module: Module, form: str = "high") -> list[str]:
    """Return all violations, each with the operation and its location."""
    if form not in FORMS:
        raise InternalError(f"no form of the IR is named {form!r}: expected one of {', '.join(FORMS)}")
    errors: list[str] = []
    seen: set[int] = set()
    for function in module.all_functions():
        checker = _Checker(module, function, form, seen)
        checker.function_rules()
        errors += checker.errors
    errors += _call_cycles(module)
    if form == "primitive" and module.functions:
        errors.append(f"functions remain beside the kernel: {', '.join(sorted(module.functions))} (15)")
    return errors


class _Checker:
    """Checks one function and collects its violations in `errors`.

    `seen` has the Python ids of the operations and regions already visited in the module. `visible` are the values that
    the current operation may use, `loops` the loops that enclose it.
    """

    def __init__(self, module: Module, function: Function, form: str, seen: set[int]) -> None:
        self.module = module
        self.function = function
        self.form = form
        self.seen = seen
        self.errors: list[str] = []
        self.visible: set[Value] = set()
        self.loops: list[Op] = []

    @functools.cached_property
    def names(self) -> dict[Value, str]:
        """Names of values for error messages; computed on first use."""
        return name_values(self.function)

    def complain(self, op: Op, rule: int, text: str) -> None:
        """Add a violation of the rule with this number."""
        where = f"@{self.function.name}, {op.loc}"
        self.errors.append(f"{where}: {text} ({rule})\n    {print_op(op, self.names)}")

    def function_rules(self) -> None:
        """Check the function: rule 12 for the kernel, and all rules of its operations."""
        function = self.function
        if function is self.module.kernel:
            size = function.attrs.get("local_size")
            if function.result_types:
                self.errors.append(f"@{function.name}: a kernel has no results (12)")
            if not (isinstance(size, tuple) and len(size) == 3 and all(type(s) is int and s > 0 for s in size)):
                self.errors.append(f"@{function.name}: local_size is {size!r}, expected three positive ints (12)")
        elif self.module.functions.get(function.name) is not function:
            self.errors.append(f"@{function.name}: the module knows it by another name (11)")
        self.region(function.body, None)

    # -- regions

    def region(self, region: Region, parent: Op | None) -> None:
        """Check a region and its operations. `parent` is the operation with the region, None for a function's body."""
        if id(region) in self.seen:
            self.errors.append(f"@{self.function.name}: one region stands in two places (3)")
            return
        self.seen.add(id(region))
        defined: list[Value] = []
        for number, argument in enumerate(region.args):
            if argument.owner is not region or argument.index != number:
                self.errors.append(f"@{self.function.name}: argument {number} isn't owned by its region (3)")
            defined.append(argument)
        self.visible.update(defined)
        for position, op in enumerate(region.ops):
            self.operation(op, region, position, parent)
            defined += op.results
            self.visible.update(op.results)
        if not region.ops or not self.is_terminator(region.ops[-1]):
            parent_text = f" of {print_op(parent, self.names)}" if parent else ""
            self.errors.append(f"@{self.function.name}: a region{parent_text} has no terminator (5)")
        self.visible.difference_update(defined)  # the values aren't visible outside of the region

    @staticmethod
    def is_terminator(op: Op) -> bool:
        row = OPS.get(op.name)
        return row is not None and row.terminator

    def operation(self, op: Op, region: Region, position: int, parent: Op | None) -> None:
        """Check an operation at `position` in a region; `parent` is the operation that contains the region."""
        row = OPS.get(op.name)
        if row is None:
            self.complain(op, 1, "no operation has this name")
            return
        if id(op) in self.seen:
            self.complain(op, 3, "the operation stands in two places")
            return
        self.seen.add(id(op))
        self.value_rules(op)
        for text in signature_errors(op, row):
            self.complain(op, 2, text)
        last = position == len(region.ops) - 1
        if row.terminator:
            if not last:
                self.complain(op, 5, "a terminator isn't the last operation of its region")
            self.terminator_rules(op, region, position, parent)
        elif not completes(op) and not self.is_end(region, position + 1):
            self.complain(op, 9, "the operation never completes, but no unreachable follows")
        self.nested(op)
        self.special_rules(op, row)

    def is_end(self, region: Region, position: int) -> bool:
        """True if a region's operations from `position` on may follow an operation that never completes (rule 9)."""
        following = [op.name for op in region.ops[position:]]
        if region is self.function.body and following[-1:] == ["return"]:
            return set(following[:-1]) <= {"poison"}
        return following == ["unreachable"]

    def value_rules(self, op: Op) -> None:
        """Check the ownership of an operation's results (rule 3) and the visibility of its operands (rule 4)."""
        for number, result in enumerate(op.results):
            if result.owner is not op or result.index != number:
                self.complain(op, 3, f"result {number} isn't owned by the operation")
        for number, value in enumerate(op.operands):
            if value not in self.visible:
                problem = "isn't visible here" if value in self.names else "belongs to no operation of this function"
                self.complain(op, 4, f"operand {number} {problem}")

    # -- structured operations

    def nested(self, op: Op) -> None:
        """Check the regions of an operation."""
        if not op.regions:
            return
        if op.name == "if":
            self.if_rules(op)
        elif op.name in _LOOPS:
            self.loop_rules(op)
            self.loops.append(op)
        for region in op.regions:
            self.region(region, op)
        if op.name in _LOOPS:
            self.loops.pop()

    def if_rules(self, op: Op) -> None:
        """Check an `if` (rule 6); `terminator_rules` checks what its regions yield."""
        if any(region.args for region in op.regions):
            self.complain(op, 6, "the regions of an if take no arguments")
        if op.results and not completes(op):
            self.complain(op, 6, "neither region yields, but there are results")

    def loop_rules(self, op: Op) -> None:
        """Check the arguments and results of a loop (rule 7)."""
        first_carried = _first_carried(op)
        if len(op.operands) < first_carried:
            return  # `signature_errors` has reported it
        carried = [v.type for v in op.operands[first_carried:]]
        induction_variable = [op.operands[0].type] if op.name == "for" else []
        arguments = [a.type for a in op.regions[0].args] if op.regions else []
        self.same(op, 7, "arguments of the body", arguments, induction_variable + carried)
        if op.name == "for":
            self.same(op, 7, "results", [r.type for r in op.results], carried)

    def same(self, op: Op, rule: int, what: str, actual: list[Type], expected: list[Type]) -> None:
        """Check that two lists of types are equal; `what` names them in the error."""
        if actual != expected:
            text = f"({', '.join(map(str, actual))}), expected ({', '.join(map(str, expected))})"
            self.complain(op, rule, f"{what}: {text}")

    # -- terminators

    def terminator_rules(self, op: Op, region: Region, position: int, parent: Op | None) -> None:
        """Check the place of a terminator and the types of its operands (rules 6 to 9 and 14)."""
        given = [v.type for v in op.operands]
        if op.name == "unreachable":
            if position == 0 or completes(region.ops[position - 1]):
                self.complain(op, 9, "unreachable follows an operation that completes")
        elif op.name == "return":
            self.same(op, 8, "returned", given, self.function.result_types)
            if self.form != "high" and region is not self.function.body:
                self.complain(op, 14, "return stands inside control flow")
        elif op.name == "yield":
            if parent is not None and parent.name in ("tile_map", "tile_each"):
                return  # `tile_errors` checks what is yielded
            if parent is None or parent.name != "if":
                self.complain(op, 8, "yield ends a region of something that isn't an if")
            else:
                self.same(op, 6, "yielded", given, [r.type for r in parent.results])
        elif not self.loops:
            self.complain(op, 8, f"{op.name} outside of loops")
        else:
            loop = self.loops[-1]
            expected = loop.results if op.name == "break" else loop.operands[_first_carried(loop) :]
            self.same(op, 7, f"given by {op.name}", given, [v.type for v in expected])
        if self.form != "high" and region is self.function.body and op.name != "return":
            self.complain(op, 14, "the function's body has to end in return")

    # -- other rules

    def special_rules(self, op: Op, row: OpInfo) -> None:
        """Check rules 10, 11 and 13 (arrays in control flow, calls, report sites) and those of the primitive form."""
        if op.name == "call":
            self.call_rules(op)
        elif op.name in ("report", "print", "assume"):
            site = op.attrs.get("site")
            if type(site) is int and site >= len(self.module.sites):
                self.complain(op, 13, f"the module has {len(self.module.sites)} sites")
        elif row.terminator or op.regions or op.name == "select":
            values = [*op.operands, *op.results]
            if any(isinstance(v.type, Array) for v in values):
                self.complain(op, 10, "an array passes through control flow")
        if self.form == "primitive":
            self.primitive_rules(op, row)

    def call_rules(self, op: Op) -> None:
        """Check a call (rule 11), except for recursion."""
        callee = self.module.functions.get(op.attrs.get("callee", ""))
        if callee is None:
            self.complain(op, 11, "the module has no such function")
            return
        self.same(op, 11, "arguments", [v.type for v in op.operands], [p.type for p in callee.params])
        self.same(op, 11, "results", [r.type for r in op.results], callee.result_types)

    def primitive_rules(self, op: Op, row: OpInfo) -> None:
        """Check the rules of the primitive form (15 to 17)."""
        if op.name == "call":
            self.complain(op, 15, "a call remains")
        if op.name in ("load", "store", "mat_load", "mat_store") or op.name.startswith("atomic"):
            array = op.operands[0].type if op.operands else None
            if isinstance(array, Array) and not array.linear:
                self.complain(op, 16, "access to an array that isn't linear")
        if row.meaning is not None and op.operands:
            first = op.operands[0].type
            kind = first.dtype.kind if isinstance(first, (Scalar, Vector)) else ""
            if kind not in row.spirv and "any" not in row.spirv:
                self.complain(op, 17, f"no SPIR-V instruction for kind {kind!r}")


def _first_carried(loop: Op) -> int:
    """Return the index of a loop's first operand that is a loop-carried value: after the bounds and step of a `for`."""
    return 3 if loop.name == "for" else 0


def _call_cycles(module: Module) -> list[str]:
    """Return an error for each cycle of calls."""
    calls = {
        function.name: {op.attrs.get("callee") for op in function.body.walk() if op.name == "call"}
        for function in module.functions.values()
    }
    done: set[str] = set()
    errors: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            errors.append(
                f"functions call themselves in a circle: {' -> '.join((*path[path.index(name) :], name))} (11)"
            )
        elif name in calls and name not in done:
            for callee in sorted(c for c in calls[name] if isinstance(c, str)):
                visit(callee, (*path, name))
            done.add(name)

    for name in calls:
        visit(name, ())
    return errors
