"""Machine code of a whole launch: check the arguments, compute the grid, fill the argument block, launch.

`LaunchCode` generates the part that back ends have in common, a subclass the launch itself. `vkjit_launch` is a Python
function (see `cpython.method`) that takes the arguments of a call. Its owner holds the address of a `Plan` and that of a
table (see `API`). It returns True after launching. It returns False and has no effect if no plan of the chain matches or
if Python must handle the call. Reference counts are maintained.

All steps that can fail come before the first change of state. Labels: `next` tries the next plan; `refused` returns
False; `held` first undoes what `execute` has acquired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .abi import ITSELF, LITERAL, NO_ARRAY, Axis, Cell, Constant, Field, Kind, Layout, Name, Pair, Row, Word
from .llvm_text import Text

__all__ = ["API", "OBJECTS", "LaunchCode"]

API = (
    "PyDict_GetItemWithError", "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble", "PyLong_AsLongLong",
    "PyLong_FromLongLong", "PyList_Size", "PyObject_CallNoArgs", "Py_DecRef", "Py_IncRef",
)  # fmt: skip
"""Functions of the C API in the table of every back end."""
OBJECTS = ("Buffer", "DeviceArray", "False", "None", "True")
"""Python objects in that table; `Buffer` is the class of the back end's buffers."""


class LaunchCode(ABC):
    """Generator of `vkjit_launch`. Most methods emit the code that does what their docstrings say."""

    def __init__(self, layout: Layout, table: Sequence[str]) -> None:
        """`table` has the names of the items in the table, in order."""
        self.layout = layout
        self.t = Text(table)
        self.refused = "refused"
        """The label for launches that Python must handle: `refused`, or `held` where something must be undone."""

    @abstractmethod
    def enter(self) -> None:
        """Prepare for all plans of the chain, or branch to `nothing`, which returns False."""

    @abstractmethod
    def check_plan(self) -> None:
        """Check that the plan can be used, before anything is written to it, or branch to `refused`."""

    @abstractmethod
    def check_buffer(self, buffer: str, written: str) -> None:
        """Check a buffer, which the launch writes if `written` isn't 0, or branch to `refused`."""

    @abstractmethod
    def execute(self) -> None:
        """Launch, or branch to `refused`. Everything that can fail comes before the first change of state."""

    @abstractmethod
    def undo(self) -> None:
        """Undo what `execute` had acquired when it branched to `held`."""

    @abstractmethod
    def leave(self) -> None:
        """Undo `enter`."""

    def text(self) -> str:
        t = self.t
        t.put(f"%plan.at = add i64 %owner, {self.layout.payload}")
        t.put(f"%table.at = add i64 %owner, {self.layout.payload + 8}")
        t.put("%table.pointer = inttoptr i64 %table.at to ptr")
        t.put("%table = load i64, ptr %table.pointer")
        false, true = t.known("False"), t.known("True")
        plan = t.cell(t.load("%plan.at"))
        self.plan = t.get(plan)
        self.enter()
        t.begin("try")
        self.plan = t.get(plan)
        t.unless(t.new(f"icmp ne i64 {self.plan}, 0"), "refused")
        t.unless(t.same(self.of(Word.COUNT), "%count"), "refused")
        self.check_plan()
        self.captures()
        self.constants()
        self.arrays()
        self.pairs()
        self.grid()
        self.execute()
        t.begin("done")
        t.put("br label %answer")
        t.at("next")
        t.set(plan, t.load(self.plan, 8 * Word.NEXT))
        t.put("br label %try")
        t.at("held")
        self.undo()
        t.begin("refused")
        t.begin("answer")
        answer = t.new(f"phi i64 [{false}, %refused], [{true}, %done]")
        self.leave()
        t.put("br label %return")
        t.at("nothing")
        t.call("PyErr_Clear", returns="void")
        t.begin("return")
        result = t.new(f"phi i64 [{answer}, %answer], [{false}, %nothing]")
        t.call("Py_IncRef", result, returns="void")
        t.put(f"ret i64 {result}")
        return "define i64 @vkjit_launch(i64 %owner, i64 %args, i64 %count) {\n" + "\n".join(t.lines) + "\n}\n"

    def of(self, word: int) -> str:
        return self.t.load(self.plan, 8 * word)

    def rows(self, word: int) -> tuple[str, str]:
        """Return the number of rows of a table, and the address of the first."""
        return self.of(word), self.t.load(self.plan, 8 * (word + 1))

    @contextmanager
    def each_row(self, word: int, words: int) -> Iterator[tuple[str, str]]:
        """Loop over the rows of a table, of `words` words each; yields a row's number and its address."""
        count, rows = self.rows(word)
        with self.t.each(count) as number:
            yield number, self.t.row(rows, number, words)

    def number(self, value: str) -> str:
        """Return the value of a Python int. Branch to `refused` if it doesn't fit 64 bits."""
        t = self.t
        found = t.call("PyLong_AsLongLong", value)
        self.check_error(t.same(found, -1))
        return found

    def check_error(self, suspicious: str) -> None:
        """Clear the exception and branch to `refused` if the condition holds and an exception is set."""
        t = self.t
        with t.where(suspicious):
            error = t.call("PyErr_Occurred")
            clear, after = t.label(), t.label()
            t.put(f"br i1 {t.same(error, 0)}, label %{after}, label %{clear}")
            t.at(clear)
            t.call("PyErr_Clear", returns="void")
            t.put(f"br label %{self.refused}")
            t.at(after)

    def captures(self) -> None:
        """Check that no `sanitized` block is open, and that the kernel's captures are unchanged."""
        t = self.t
        t.unless(t.same(t.call("PyList_Size", self.of(Word.BLOCKS)), 0), "refused")
        with self.each_row(Word.CELLS, Cell.WORDS) as (_, row):
            found = t.load(t.load(row, 8 * Cell.CELL), self.layout.content)
            t.unless(t.same(found, t.load(row, 8 * Cell.VALUE)), "refused")
        with self.each_row(Word.NAMES, Name.WORDS) as (_, row):
            found = t.call("PyDict_GetItemWithError", t.load(row, 8 * Name.DICTIONARY), t.load(row, 8 * Name.KEY))
            self.check_error(t.same(found, 0))
            t.unless(t.same(found, t.load(row, 8 * Name.VALUE)), "refused")

    def constants(self) -> None:
        """Check the types of scalars and the values of constants."""
        t = self.t
        with self.each_row(Word.CONSTANTS, Constant.WORDS) as (_, row):
            given = t.load("%args", t.load(row, 8 * Constant.PLACE))
            t.unless(t.same(t.load(given, self.layout.type), t.load(row, 8 * Constant.TYPE)), "next")
            exactly = t.load(row, 8 * Constant.EXACTLY)
            t.unless(t.new(f"or i1 {t.same(exactly, 0)}, {t.same(given, exactly)}"), "next")

    def arrays(self) -> None:
        """Check the arrays' types and layouts, their buffers, and that no two arrays share a written buffer.

        The last check applies to arrays with a checked specialization class.
        """
        t, at = self.t, self.layout
        count, rows = self.rows(Word.ARRAYS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            given = t.load("%args", t.load(row, 8 * Row.PLACE))
            t.unless(t.same(t.load(given, at.type), t.load(row, 8 * Row.TYPE)), "next")
            self.check_unrecorded(given, row)
            slot = t.load(row, 8 * Row.SLOT)
            buffer, spec = t.cell(given), t.load(row, 8 * Row.SPEC)
            with t.where(t.new(f"icmp ne i64 {slot}, {NO_ARRAY}")):
                inner = t.cell(given)
                with t.where(t.new(f"icmp ne i64 {slot}, {ITSELF}")):
                    t.set(inner, t.load(given, slot))
                array = t.get(inner)
                self.check_set(array)
                t.unless(t.same(t.load(array, at.type), t.known("DeviceArray")), "refused")
                for name, word in (("spec_class", Row.SPEC), ("shape", Row.SHAPE), ("strides", Row.STRIDES)):
                    expected = t.load(row, 8 * word)
                    equal = t.same(t.load(array, at.array[name]), expected)
                    t.unless(t.new(f"or i1 {t.same(expected, 0)}, {equal}"), "next")
                t.set(buffer, t.load(array, at.array["buffer"]))
                descriptor = t.load(array, at.array["descriptor"])
                self.check_set(descriptor)
                t.store(t.new(f"add i64 {descriptor}, {at.items}"), row, 8 * Row.ITEMS)
            found = t.get(buffer)
            self.check_set(found)
            t.unless(t.same(t.load(found, at.type), t.known("Buffer")), "refused")
            self.check_buffer(found, t.load(row, 8 * Row.WRITTEN))
            t.unless(t.same(t.load(found, at.buffer["device"]), self.of(Word.DEVICE)), "next")
            with t.where(t.same(slot, NO_ARRAY)):
                t.store(t.new(f"add i64 {found}, {at.buffer['address']}"), row, 8 * Row.ITEMS)
            t.store(found, row, 8 * Row.BUFFER)
            with t.where(t.new(f"icmp ne i64 {spec}, 0")), t.each(number) as before:
                other = t.row(rows, before, Row.WORDS)
                apart = t.new(f"icmp ne i64 {t.load(other, 8 * Row.BUFFER)}, {found}")
                both = t.new(f"or i64 {t.load(row, 8 * Row.WRITTEN)}, {t.load(other, 8 * Row.WRITTEN)}")
                t.unless(t.new(f"or i1 {apart}, {t.same(both, 0)}"), "refused")

    def check_set(self, slot: str) -> None:
        """Branch to `refused` if a slot's value is a null pointer: `__new__` without `__init__` leaves slots unset."""
        self.t.unless(self.t.new(f"icmp ne i64 {slot}, 0"), "refused")

    def check_unrecorded(self, given: str, row: str) -> None:
        """Refuse a tensor that requires a gradient, or may do so since it is stale."""
        t = self.t
        meta = t.load(row, 8 * Row.META)
        with t.where(t.new(f"icmp ne i64 {meta}, 0")):
            info = t.load(given, meta)
            self.check_set(info)
            requires_grad = t.load(info, t.load(row, 8 * Row.REQUIRES))
            t.unless(t.same(requires_grad, t.known("False")), "refused")
            version = t.load(given, t.load(row, 8 * Row.VERSION))
            self.check_set(version)
            recorded = t.load(version, t.load(row, 8 * Row.RECORDED))
            t.unless(t.same(recorded, t.load(given, t.load(row, 8 * Row.HISTORY))), "refused")

    def item(self, array: str, item: str) -> str:
        """Load an integer of an array's descriptor."""
        t = self.t
        row = t.row(self.rows(Word.ARRAYS)[1], array, Row.WORDS)
        return self.number(t.load(t.load(row, 8 * Row.ITEMS), item))

    def pairs(self) -> None:
        """Check that the dimensions in each pair are equal."""
        t = self.t
        with self.each_row(Word.PAIRS, Pair.WORDS) as (_, row):
            array = t.load(row, 8 * Pair.ARRAY)
            expected = t.cell(t.load(row, 8 * Pair.ITEM))
            with t.where(t.new(f"icmp ne i64 {array}, {LITERAL}")):
                t.set(expected, self.item(array, t.load(row, 8 * Pair.ITEM)))
            found = self.item(t.load(row, 8 * Pair.OTHER_ARRAY), t.load(row, 8 * Pair.OTHER_ITEM))
            t.unless(t.same(found, t.get(expected)), "refused")

    def grid(self) -> None:
        """Compute the numbers of workgroups, from an array's shape if the plan has axes."""
        t = self.t
        self.groups = t.cell(self.of(Word.X)), t.cell(self.of(Word.Y)), t.cell(self.of(Word.Z))
        with self.each_row(Word.AXES, Axis.WORDS) as (number, row):
            extent, local = (
                self.item(t.load(row, 8 * Axis.ARRAY), t.load(row, 8 * Axis.ITEM)),
                t.load(row, 8 * Axis.LOCAL),
            )
            t.unless(t.new(f"icmp sgt i64 {extent}, 0"), "refused")
            rounded = t.new(f"add i64 {extent}, {t.new(f'sub i64 {local}, 1')}")
            groups = t.new(f"udiv i64 {rounded}, {local}")
            t.unless(t.new(f"icmp ule i64 {groups}, {t.load(row, 8 * Axis.MOST)}"), "refused")
            with t.where(t.same(number, 0)):
                t.set(self.groups[0], groups)
            with t.where(t.same(number, 1)):
                t.set(self.groups[1], groups)

    def count_writes(self) -> None:
        """Allocate the incremented version numbers of written arrays."""
        t = self.t
        with self.each_row(Word.ARRAYS, Row.WORDS) as (_, row):
            kind = t.load(row, 8 * Row.COUNTS)
            with t.where(t.new(f"icmp ne i64 {kind}, 0")):
                given = t.load("%args", t.load(row, 8 * Row.PLACE))
                counter = t.load(given, t.load(row, 8 * Row.COUNTER))
                t.unless(t.new(f"icmp ne i64 {counter}, 0"), "held")
                t.unless(t.same(t.load(counter, self.layout.type), kind), "held")
                known = self.number(t.load(counter, t.load(row, 8 * Row.COUNT)))
                more = t.call("PyLong_FromLongLong", t.new(f"add i64 {known}, 1"))
                self.check_made(more)
                t.store(more, row, 8 * Row.NEW)

    def check_made(self, value: str) -> None:
        """Branch to `held` if an object couldn't be allocated."""
        t = self.t
        with t.where(t.same(value, 0)):
            t.call("PyErr_Clear", returns="void")
        t.unless(t.new(f"icmp ne i64 {value}, 0"), "held")

    def fields(self, target: str) -> None:
        """Fill the argument block with addresses and scalars."""
        t = self.t
        with self.each_row(Word.FIELDS, Field.WORDS) as (_, row):
            array, item = t.load(row, 8 * Field.ARRAY), t.load(row, 8 * Field.ITEM)
            goal = t.new(f"add i64 {target}, {t.load(row, 8 * Field.TARGET)}")
            is_scalar, done, value = t.same(array, LITERAL), t.label("done"), t.cell("0")
            with t.where(t.new(f"xor i1 {is_scalar}, true")):
                t.set(value, t.new(f"add i64 {self.item(array, item)}, {t.load(row, 8 * Field.SHIFT)}"))
            with t.where(is_scalar):
                self.scalar(t.load("%args", item), row, goal, value, done)
            found, least, most = t.get(value), t.load(row, 8 * Field.LEAST), t.load(row, 8 * Field.MOST)
            above, below = t.new(f"icmp sge i64 {found}, {least}"), t.new(f"icmp sle i64 {found}, {most}")
            t.unless(t.new(f"and i1 {above}, {below}"), self.refused)
            for size in (8, 4, 2, 1):
                with t.where(t.same(t.load(row, 8 * Field.SIZE), size)):
                    narrow = found if size == 8 else t.new(f"trunc i64 {found} to i{8 * size}")
                    t.store(narrow, goal, 0, f"i{8 * size}")
            t.begin(done)

    def scalar(self, given: str, row: str, goal: str, value: str, done: str) -> None:
        """Store a float at `goal` and branch to `done`, or set the variable `value` to an integer or bool."""
        t = self.t
        kind = t.load(row, 8 * Field.KIND)
        with t.where(t.new(f"or i1 {t.same(kind, Kind.SINGLE)}, {t.same(kind, Kind.DOUBLE)}")):
            number = t.call("PyFloat_AsDouble", given, returns="double")
            with t.where(t.same(kind, Kind.DOUBLE)):
                t.store(number, goal, 0, "double")
                t.put(f"br label %{done}")
                t.at(t.label("unused"))
            short = t.new(f"fptrunc double {number} to float")
            bits = t.new(f"bitcast double {number} to i64"), t.new(f"bitcast float {short} to i32")
            masks = ("i64", bits[0], 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000), ("i32", bits[1], 0x7FFFFFFF, 0x7F800000)
            infinite = [t.new(f"icmp eq {k} {t.new(f'and {k} {b}, {mask}')}, {inf}") for k, b, mask, inf in masks]
            t.unless(t.new(f"icmp eq i1 {infinite[0]}, {infinite[1]}"), self.refused)
            t.store(short, goal, 0, "float")
            t.put(f"br label %{done}")
            t.at(t.label("unused"))
        with t.where(t.same(kind, Kind.INTEGER)):
            t.set(value, self.number(given))
        with t.where(t.same(kind, Kind.BOOL)):
            t.set(value, t.new(f"zext i1 {t.same(given, t.known('True'))} to i64"))

    def replace(self, value: str, base: str, offset: int | str) -> None:
        """Set a slot to a borrowed reference."""
        t = self.t
        t.call("Py_IncRef", value, returns="void")
        self.put(value, base, offset)

    def put(self, value: str, base: str, offset: int | str) -> None:
        """Set a slot to an owned reference, which it takes over."""
        t = self.t
        old = t.load(base, offset)
        t.store(value, base, offset)
        t.call("Py_DecRef", old, returns="void")
