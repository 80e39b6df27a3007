"""Machine code of a whole launch: check the arguments, find hazards, fill the record, call the driver.

`launch_code` returns the LLVM assembly. `vkjit_launch` is a Python function (see `cpython.method`) that takes the
arguments of a call. Its owner holds the address of a `Plan` and that of a table (see `TABLE`). It returns True after
launching. It returns False and has no effect if no plan of the chain matches or if Python must handle the call. It
holds the GIL and, after looking up the thread's queue, runs no Python code before the launch is complete, so that other
threads and signal handlers never observe a partial launch. Reference counts are maintained.

All steps that can fail come before the first change of state. Labels: `next` tries the next plan; `refused` returns
False; `held` releases the queue's lock first.
"""

from __future__ import annotations

from .. import record
from .abi import ITSELF, LITERAL, NO_ARRAY, Axis, Cell, Constant, Field, Kind, Layout, Name, Pair, Row, Word
from .llvm_text import Text

__all__ = ["TABLE", "launch_code"]

TABLE = (
    "PyDict_GetItemWithError", "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble", "PyIter_Next", "PyList_Size",
    "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong", "PyLong_FromLongLong", "PyObject_Call", "PyObject_CallNoArgs",
    "PyObject_GetAttr", "Py_DecRef", "Py_IncRef", "DeviceArray", "False", "NO_WAIT", "None", "Queue", "True", "VulkanBuffer",
)  # fmt: skip
"""Names of the items of the table: functions of the C API, then Python objects."""


class _Launch:
    """Generator of `vkjit_launch`. Most methods emit the code that does what their docstrings say."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.t = Text(TABLE)
        self.refused = "refused"
        """The label for launches that Python must handle: `refused`, or `held` under the queue's lock."""

    def text(self) -> str:
        t = self.t
        t.put(f"%plan.at = add i64 %owner, {self.layout.payload}")
        t.put(f"%table.at = add i64 %owner, {self.layout.payload + 8}")
        t.put("%table.pointer = inttoptr i64 %table.at to ptr")
        t.put("%table = load i64, ptr %table.pointer")
        false, true = t.known("False"), t.known("True")
        plan = t.cell(t.load("%plan.at"))
        self.plan = t.get(plan)
        self.queue = t.call("PyObject_GetAttr", self.of(Word.CURRENT), self.of(Word.ATTRIBUTE))
        t.unless(t.new(f"icmp ne i64 {self.queue}, 0"), "nothing")
        t.begin("try")
        self.plan = t.get(plan)
        t.unless(t.new(f"icmp ne i64 {self.plan}, 0"), "refused")
        t.unless(t.same(self.of(Word.COUNT), "%count"), "refused")
        self.captures()
        self.constants()
        self.arrays()
        self.pairs()
        self.grid()
        self.lock()
        self.record()
        t.begin("done")
        t.put("br label %answer")
        t.at("next")
        t.set(plan, t.load(self.plan, 8 * Word.NEXT))
        t.put("br label %try")
        t.at("held")
        self.release()
        t.begin("refused")
        t.begin("answer")
        answer = t.new(f"phi i64 [{false}, %refused], [{true}, %done]")
        t.call("Py_DecRef", self.queue, returns="void")
        t.put("br label %return")
        t.at("nothing")
        t.call("PyErr_Clear", returns="void")
        t.begin("return")
        result = t.new(f"phi i64 [{answer}, %answer], [{false}, %nothing]")
        t.call("Py_IncRef", result, returns="void")
        t.put(f"ret i64 {result}")
        return "define i64 @vkjit_launch(i64 %owner, i64 %args, i64 %count) {\n" + "\n".join(t.lines) + "\n}\n"

    def of(self, word: Word) -> str:
        return self.t.load(self.plan, 8 * word)

    def rows(self, word: Word) -> tuple[str, str]:
        """Return the number of rows of a table, and the address of the first."""
        return self.of(word), self.t.load(self.plan, 8 * (word + 1))

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
        count, rows = self.rows(Word.CELLS)
        with t.each(count) as number:
            row = t.row(rows, number, Cell.WORDS)
            found = t.load(t.load(row, 8 * Cell.CELL), self.layout.content)
            t.unless(t.same(found, t.load(row, 8 * Cell.VALUE)), "refused")
        count, rows = self.rows(Word.NAMES)
        with t.each(count) as number:
            row = t.row(rows, number, Name.WORDS)
            found = t.call("PyDict_GetItemWithError", t.load(row, 8 * Name.DICTIONARY), t.load(row, 8 * Name.KEY))
            self.check_error(t.same(found, 0))
            t.unless(t.same(found, t.load(row, 8 * Name.VALUE)), "refused")

    def constants(self) -> None:
        """Check the types of scalars and the values of constants."""
        t = self.t
        count, rows = self.rows(Word.CONSTANTS)
        with t.each(count) as number:
            row = t.row(rows, number, Constant.WORDS)
            given = t.load("%args", t.load(row, 8 * Constant.PLACE))
            t.unless(t.same(t.load(given, self.layout.type), t.load(row, 8 * Constant.TYPE)), "next")
            exactly = t.load(row, 8 * Constant.EXACTLY)
            t.unless(t.new(f"or i1 {t.same(exactly, 0)}, {t.same(given, exactly)}"), "next")

    def arrays(self) -> None:
        """Check the arrays' types and layouts, their buffers' owner queues, and that written buffers aren't shared.

        The last check applies to arrays with a checked specialization class.
        """
        t, at = self.t, self.layout
        count, rows = self.rows(Word.ARRAYS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            given = t.load("%args", t.load(row, 8 * Row.PLACE))
            t.unless(t.same(t.load(given, at.type), t.load(row, 8 * Row.TYPE)), "next")
            slot = t.load(row, 8 * Row.SLOT)
            buffer, spec = t.cell(given), t.load(row, 8 * Row.SPEC)
            with t.where(t.new(f"icmp ne i64 {slot}, {NO_ARRAY}")):
                inner = t.cell(given)
                with t.where(t.new(f"icmp ne i64 {slot}, {ITSELF}")):
                    t.set(inner, t.load(given, slot))
                array = t.get(inner)
                t.unless(t.new(f"icmp ne i64 {array}, 0"), "refused")
                t.unless(t.same(t.load(array, at.type), t.known("DeviceArray")), "refused")
                for name, word in (("spec_class", Row.SPEC), ("shape", Row.SHAPE), ("strides", Row.STRIDES)):
                    expected = t.load(row, 8 * word)
                    equal = t.same(t.load(array, at.array[name]), expected)
                    t.unless(t.new(f"or i1 {t.same(expected, 0)}, {equal}"), "next")
                t.set(buffer, t.load(array, at.array["buffer"]))
                t.store(t.new(f"add i64 {t.load(array, at.array['descriptor'])}, {at.items}"), row, 8 * Row.ITEMS)
            found = t.get(buffer)
            t.unless(t.same(t.load(found, at.type), t.known("VulkanBuffer")), "refused")
            t.unless(t.same(t.load(found, at.buffer["queue"]), self.queue), "refused")
            t.unless(t.same(t.load(found, at.buffer["device"]), self.of(Word.DEVICE)), "next")
            with t.where(t.same(slot, NO_ARRAY)):
                t.store(t.new(f"add i64 {found}, {at.buffer['address']}"), row, 8 * Row.ITEMS)
            written = t.load(row, 8 * Row.WRITTEN)
            alone = t.same(t.load(found, at.buffer["readers"]), t.known("None"))
            t.unless(t.new(f"or i1 {t.same(written, 0)}, {alone}"), "refused")
            t.store(found, row, 8 * Row.BUFFER)
            with t.where(t.new(f"icmp ne i64 {spec}, 0")), t.each(number) as before:
                other = t.row(rows, before, Row.WORDS)
                apart = t.new(f"icmp ne i64 {t.load(other, 8 * Row.BUFFER)}, {found}")
                both = t.new(f"or i64 {written}, {t.load(other, 8 * Row.WRITTEN)}")
                t.unless(t.new(f"or i1 {apart}, {t.same(both, 0)}"), "refused")

    def item(self, array: str, item: str) -> str:
        """Load an integer of an array's descriptor."""
        t = self.t
        row = t.row(self.rows(Word.ARRAYS)[1], array, Row.WORDS)
        return self.number(t.load(t.load(row, 8 * Row.ITEMS), item))

    def pairs(self) -> None:
        """Check that the dimensions in each pair are equal."""
        t = self.t
        count, rows = self.rows(Word.PAIRS)
        with t.each(count) as number:
            row = t.row(rows, number, Pair.WORDS)
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
        count, rows = self.rows(Word.AXES)
        with t.each(count) as number:
            row = t.row(rows, number, Axis.WORDS)
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

    def lock(self) -> None:
        """Acquire the queue's lock without waiting, or branch to `refused`."""
        t, queue = self.t, self.layout.queue
        t.unless(t.same(t.load(self.queue, self.layout.type), t.known("Queue")), "refused")
        t.unless(t.same(t.load(self.queue, queue["lock"]), self.of(Word.LOCK)), "refused")
        # the tuple is there already: to make one may collect garbage (before Python 3.12), and finalizers may launch
        answer = t.call("PyObject_Call", self.of(Word.ACQUIRE), t.known("NO_WAIT"), "0")
        with t.where(t.same(answer, 0)):
            t.call("PyErr_Clear", returns="void")
        t.unless(t.new(f"icmp ne i64 {answer}, 0"), "refused")
        t.call("Py_DecRef", answer, returns="void")
        t.unless(t.same(answer, t.known("True")), "refused")
        self.refused = "held"

    def release(self) -> None:
        t = self.t
        answer = t.call("PyObject_CallNoArgs", self.of(Word.RELEASE))
        t.call("Py_DecRef", answer, returns="void")

    def record(self) -> None:
        """Emit the part that runs under the lock. Everything that can fail comes before `commit`."""
        t, at = self.t, self.layout
        handle = self.number(t.load(self.queue, at.queue["command_handle"]))
        t.unless(t.new(f"icmp ne i64 {handle}, 0"), "held")
        recorded = t.new(f"add i64 {self.number(t.load(self.queue, at.queue['recorded']))}, 1")
        t.unless(t.new(f"icmp slt i64 {recorded}, {self.number(t.load(self.queue, at.queue['budget']))}"), "held")
        hazard = self.hazard()
        transferred = t.load(self.queue, at.queue["transferred"])
        t.unless(t.new(f"or i1 {t.same(hazard, 0)}, {t.same(transferred, t.known('False'))}"), "held")
        target = self.of(Word.RECORD)
        self.fields(target)
        t.store(handle, target, record.COMMAND)
        for groups, offset in zip(self.groups, (record.GRID_X, record.GRID_YZ, record.GRID_YZ + 4), strict=True):
            t.store(t.new(f"trunc i64 {t.get(groups)} to i32"), target, offset, "i32")
        self.count_writes()
        counted = t.call("PyLong_FromLongLong", recorded)
        self.check_made(counted)
        epoch = t.cell(t.load(self.queue, at.queue["epoch"]))
        with t.where(t.same(hazard, 0)):
            t.call("Py_IncRef", t.get(epoch), returns="void")
        with t.where(t.new(f"icmp ne i64 {hazard}, 0")):
            fresh = t.call("PyIter_Next", self.of(Word.EPOCHS))
            with t.where(t.same(fresh, 0)):
                t.call("Py_DecRef", counted, returns="void")
            self.check_made(fresh)
            t.set(epoch, fresh)
        self.commit(t.get(epoch), counted, hazard)

    def count_writes(self) -> None:
        """Allocate the incremented version numbers of written arrays."""
        t = self.t
        count, rows = self.rows(Word.ARRAYS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
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

    def hazard(self) -> str:
        """Compute 1 if a command since the last barrier must complete before this launch, else 0."""
        t, at = self.t, self.layout
        epoch = self.number(t.load(self.queue, at.queue["epoch"]))
        found = t.cell("0")
        count, rows = self.rows(Word.ARRAYS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            buffer = t.load(row, 8 * Row.BUFFER)
            written = self.number(t.load(buffer, at.buffer["write_epoch"]))
            with t.where(t.same(written, epoch)):
                t.set(found, "1")
            with t.where(t.new(f"icmp ne i64 {t.load(row, 8 * Row.WRITTEN)}, 0")):
                read = self.number(t.load(buffer, at.buffer["read_epoch"]))
                with t.where(t.same(read, epoch)):
                    t.set(found, "1")
        return t.get(found)

    def fields(self, target: str) -> None:
        """Fill the argument block with addresses and scalars."""
        t = self.t
        count, rows = self.rows(Word.FIELDS)
        with t.each(count) as number:
            row = t.row(rows, number, Field.WORDS)
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

    def commit(self, epoch: str, counted: str, hazard: str) -> None:
        """Update the state of the buffers, the kernel and the queue, and call the driver.

        Takes over the references to `epoch` and `counted`.
        """
        t, at = self.t, self.layout
        serial = t.load(self.queue, at.queue["serial"])
        count, rows = self.rows(Word.ARRAYS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            buffer = t.load(row, 8 * Row.BUFFER)
            is_written = t.new(f"icmp ne i64 {t.load(row, 8 * Row.WRITTEN)}, 0")
            places = f"i64 {at.buffer['write_epoch']}, i64 {at.buffer['read_epoch']}"
            self.replace(epoch, buffer, t.new(f"select i1 {is_written}, {places}"))
            self.replace(serial, buffer, at.buffer["last_use"])
            with t.where(is_written):
                self.replace(serial, buffer, at.buffer["last_write"])
            with t.where(t.new(f"icmp ne i64 {t.load(row, 8 * Row.COUNTS)}, 0")):
                given = t.load("%args", t.load(row, 8 * Row.PLACE))
                counter = t.load(given, t.load(row, 8 * Row.COUNTER))
                self.put(t.load(row, 8 * Row.NEW), counter, t.load(row, 8 * Row.COUNT))
        kernel, bound = self.of(Word.KERNEL), t.load(self.queue, at.queue["bound"])
        is_new = t.new(f"icmp ne i64 {bound}, {kernel}")
        flags = t.new(f"or i64 {t.new(f'zext i1 {is_new} to i64')}, {t.new(f'shl i64 {hazard}, 1')}")
        t.put(f"call void @vkjit_record(i64 {t.new(f'or i64 {self.of(Word.RECORD)}, {flags}')})")
        dropped = t.cell("0")
        self.put(epoch, self.queue, at.queue["epoch"])
        self.put(counted, self.queue, at.queue["recorded"])
        with t.where(is_new):
            t.call("Py_IncRef", kernel, returns="void")
            t.store(kernel, self.queue, at.queue["bound"])
            t.set(dropped, bound)
            self.replace(serial, kernel, at.kernel["last_use"])
            self.replace(self.queue, kernel, at.kernel["user"])
        self.release()
        t.call("Py_DecRef", t.get(dropped), returns="void")  # last, since a finalizer may be Python code


def launch_code(layout: Layout) -> str:
    """Return the assembly of a module with `vkjit_launch`, `vkjit_record_method` and `vkjit_nothing`.

    `vkjit_record_method` is a Python function that takes the address of a record plus flags. The code, from
    `vkjit_launch` to `vkjit_end`, is position-independent.
    """
    t = Text(TABLE)
    t.put(f"%table.at = add i64 %owner, {layout.payload + 8}")
    t.put("%table.pointer = inttoptr i64 %table.at to ptr")
    t.put("%table = load i64, ptr %table.pointer")
    flagged = t.call("PyLong_AsUnsignedLongLong", t.load("%args"))
    t.put(f"call void @vkjit_record(i64 {flagged})")
    t.call("Py_IncRef", t.known("None"), returns="void")
    t.put(f"ret i64 {t.known('None')}")
    method = "define i64 @vkjit_record_method(i64 %owner, i64 %args, i64 %count) {\n" + "\n".join(t.lines) + "\n}\n"
    ends = "".join(f"define void @{name}() {{\n  ret void\n}}\n" for name in ("vkjit_nothing", "vkjit_end"))
    return _Launch(layout).text() + method + record.TEXT.replace("define void", "define internal void") + ends
