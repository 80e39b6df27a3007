"""A whole launch as machine code: arguments checked, hazards found, the record filled, the driver called.

Enters: where objects keep what they hold (`Layout`). Leaves: LLVM's text of `vkjit_launch`, which takes a `Plan`, a queue and the
tuple of arguments, and says whether it has launched. Holds: it does what the written out functions of `_gen_launch` do, or says
False and has done nothing; then these decide. It runs under the interpreter's lock and none of Python's code runs in
between, so nobody sees half of what it does, and no signal is handled in the middle. References are counted as Python would.

What can fail comes before what changes something. Labels: `next`, where the plan doesn't fit and the one that follows may;
`refused`; `held`, refused while the queue's lock is held.
"""

from __future__ import annotations

from vkjit.runtime.array import DeviceArray

from .. import trampoline
from ..memory.buffer import VulkanBuffer
from ..queue.queue import Queue
from .launch_abi import COMMAND, LITERAL, Cell, Field, Kind, Layout, Name, Other, Pair, Row, Word, X, Y
from .llvm_text import Text

__all__ = ["launch_code"]

_HEAD = """
define i64 @vkjit_launch(i64 %owner, ptr %given, i64 %count) {
  %queue = load i64, ptr %given
  %args.at = getelementptr i64, ptr %given, i64 1
  %args = load i64, ptr %args.at
"""


class _Launch:
    """Writes the launch."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.t = Text()
        self.refused = "refused"
        """Where to go when the launch is left to others."""

    def text(self) -> str:
        t = self.t
        plan = t.cell(t.call("PyLong_AsLongLong", t.load("%owner", self.layout.plan["address"])))
        t.begin("try")
        self.plan = t.get(plan)
        t.unless(t.new(f"icmp ne i64 {self.plan}, 0"), "nothing")
        self.captures()
        self.arrays()
        self.others()
        self.pairs()
        self.grid()
        self.lock()
        self.record()
        t.put("br label %done")
        t.at("next")
        t.set(plan, t.load(self.plan, 8 * Word.NEXT))
        t.put("br label %try")
        t.at("held")
        self.release()
        t.begin("refused")
        t.begin("nothing")
        t.put("br label %answer")
        t.at("done")
        t.begin("answer")
        answer = t.new(f"phi i64 [{id(False)}, %nothing], [{id(True)}, %done]")
        t.call("Py_IncRef", answer, returns="void")
        t.put(f"ret i64 {answer}")
        return trampoline.TEXT + _HEAD + "\n".join(t.lines) + "\n}\n"

    def of(self, word: Word) -> str:
        return self.t.load(self.plan, 8 * word)

    def rows(self, count: Word, rows: Word) -> tuple[str, str]:
        return self.of(count), self.of(rows)

    def number(self, value: str) -> str:
        """The value of an int; one that takes more than 64 bits is left to Python."""
        t = self.t
        found = t.call("PyLong_AsLongLong", value)
        self.sound(t.same(found, -1))
        return found

    def sound(self, suspicious: str) -> None:
        """Leaves where an error has been set."""
        t = self.t
        with t.where(suspicious):
            error = t.call("PyErr_Occurred")
            clear, after = t.label(), t.label()
            t.put(f"br i1 {t.same(error, 0)}, label %{after}, label %{clear}")
            t.at(clear)
            t.call("PyErr_Clear", returns="void")
            t.put(f"br label %{self.refused}")
            t.at(after)

    def arrays(self) -> None:
        """Are they of the types and forms of the plan, at home here, and apart from each other?"""
        t, at = self.t, self.layout
        count, rows = self.rows(Word.ARRAYS, Word.ARRAY_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            given = t.load("%args", t.load(row, 8 * Row.PLACE))
            t.unless(t.same(t.load(given, at.type), t.load(row, 8 * Row.TYPE)), "next")
            slot = t.load(row, 8 * Row.SLOT)
            inner = t.load(given, slot)
            array = t.new(f"select i1 {t.same(slot, 0)}, i64 {given}, i64 {inner}")
            t.unless(t.new(f"icmp ne i64 {array}, 0"), "refused")
            t.unless(t.same(t.load(array, at.type), id(DeviceArray)), "refused")
            t.unless(t.same(t.load(array, at.array["spec_class"]), t.load(row, 8 * Row.FORM)), "next")
            buffer = t.load(array, at.array["buffer"])
            t.unless(t.same(t.load(buffer, at.type), id(VulkanBuffer)), "refused")
            t.unless(t.same(t.load(buffer, at.buffer["queue"]), "%queue"), "refused")
            t.unless(t.same(t.load(buffer, at.buffer["device"]), self.of(Word.DEVICE)), "next")
            written = t.load(row, 8 * Row.WRITTEN)
            alone = t.same(t.load(buffer, at.buffer["readers"]), id(None))
            t.unless(t.new(f"or i1 {t.same(written, 0)}, {alone}"), "refused")
            t.store(buffer, row, 8 * Row.BUFFER)
            t.store(t.load(array, at.array["descriptor"]), row, 8 * Row.NUMBERS)
            with t.each(number) as before:
                other = t.row(rows, before, Row.WORDS)
                apart = t.new(f"icmp ne i64 {t.load(other, 8 * Row.BUFFER)}, {buffer}")
                both = t.new(f"or i64 {written}, {t.load(other, 8 * Row.WRITTEN)}")
                t.unless(t.new(f"or i1 {apart}, {t.same(both, 0)}"), "refused")

    def captures(self) -> None:
        """Is every launch let through, and does the kernel capture what it did?"""
        t = self.t
        t.unless(t.same(t.call("PyList_Size", self.of(Word.BLOCKS)), 0), "refused")
        count, rows = self.rows(Word.CELLS, Word.CELL_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Cell.WORDS)
            found = t.load(t.load(row, 8 * Cell.CELL), self.layout.content)
            t.unless(t.same(found, t.load(row, 8 * Cell.VALUE)), "refused")
        count, rows = self.rows(Word.NAMES, Word.NAME_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Name.WORDS)
            names, name = t.load(row, 8 * Name.NAMES), t.load(row, 8 * Name.NAME)
            found = t.call("PyDict_GetItemWithError", names, name)
            self.sound(t.same(found, 0))
            t.unless(t.same(found, t.load(row, 8 * Name.VALUE)), "refused")

    def others(self) -> None:
        """Are the other arguments of the plan's types, and constants the same?"""
        t = self.t
        count, rows = self.rows(Word.OTHERS, Word.OTHER_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Other.WORDS)
            given = t.load("%args", t.load(row, 8 * Other.PLACE))
            t.unless(t.same(t.load(given, self.layout.type), t.load(row, 8 * Other.TYPE)), "next")
            exactly = t.load(row, 8 * Other.EXACTLY)
            t.unless(t.new(f"or i1 {t.same(exactly, 0)}, {t.same(given, exactly)}"), "next")

    def operand(self, array: str, place: str) -> str:
        """A number that is told about an array."""
        t = self.t
        rows = self.of(Word.ARRAY_ROWS)
        words = t.load(t.row(rows, array, Row.WORDS), 8 * Row.NUMBERS)
        return self.number(t.load(words, place))

    def pairs(self) -> None:
        """Do the dimensions agree?"""
        t = self.t
        count, rows = self.rows(Word.PAIRS, Word.PAIR_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Pair.WORDS)
            array, place = t.load(row, 8 * Pair.ARRAY), t.load(row, 8 * Pair.PLACE)
            wanted = t.cell(place)
            with t.where(t.new(f"icmp ne i64 {array}, {LITERAL}")):
                t.set(wanted, self.operand(array, place))
            found = self.operand(t.load(row, 8 * Pair.OTHER_ARRAY), t.load(row, 8 * Pair.OTHER_PLACE))
            t.unless(t.same(found, t.get(wanted)), "refused")

    def grid(self) -> None:
        """How many workgroups are there?"""
        t = self.t
        self.x, self.y = t.cell(self.of(Word.X)), t.cell("1")
        along = self.of(Word.ALONG)
        axes = ((self.x, 0, Word.X_ARRAY), (self.y, 1, Word.Y_ARRAY))
        for cell, least, first in axes:
            with t.where(t.new(f"icmp ugt i64 {along}, {least}")):
                extent = self.operand(self.of(first), self.of(Word(first + 1)))
                local = self.of(Word(first + 2))
                t.unless(t.new(f"icmp sgt i64 {extent}, 0"), "refused")
                more = t.new(f"add i64 {extent}, {t.new(f'sub i64 {local}, 1')}")
                groups = t.new(f"udiv i64 {more}, {local}")
                t.unless(t.new(f"icmp ule i64 {groups}, {self.of(Word(first + 3))}"), "refused")
                t.set(cell, groups)

    def lock(self) -> None:
        """Takes the queue's lock, if nobody else has it."""
        t, queue = self.t, self.layout.queue
        t.unless(t.same(t.load("%queue", self.layout.type), id(Queue)), "refused")
        t.unless(t.same(t.load("%queue", queue["lock"]), self.of(Word.LOCK)), "refused")
        answer = t.call("PyObject_CallOneArg", self.of(Word.ACQUIRE), str(id(False)))
        with t.where(t.same(answer, 0)):
            t.call("PyErr_Clear", returns="void")
        t.unless(t.new(f"icmp ne i64 {answer}, 0"), "refused")
        t.call("Py_DecRef", answer, returns="void")
        t.unless(t.same(answer, id(True)), "refused")
        self.refused = "held"

    def release(self) -> None:
        t = self.t
        answer = t.call("PyObject_CallNoArgs", self.of(Word.RELEASE))
        t.call("Py_DecRef", answer, returns="void")

    def record(self) -> None:
        """Everything under the lock; what can fail comes before what changes something."""
        t, at = self.t, self.layout
        ticket = self.number(t.load("%queue", at.queue["command_handle"]))
        t.unless(t.new(f"icmp ne i64 {ticket}, 0"), "held")
        recorded = t.new(f"add i64 {self.number(t.load('%queue', at.queue['recorded']))}, 1")
        t.unless(t.new(f"icmp slt i64 {recorded}, {self.number(t.load('%queue', at.queue['budget']))}"), "held")
        conflict = self.conflict()
        t.unless(
            t.new(f"or i1 {t.same(conflict, 0)}, {t.same(t.load('%queue', at.queue['transferred']), id(False))}"),
            "held",
        )
        target = self.of(Word.RECORD)
        self.fields(target)
        t.store(ticket, target, COMMAND)
        t.store(t.new(f"trunc i64 {t.get(self.x)} to i32"), target, X, "i32")
        with t.where(t.new(f"icmp ugt i64 {self.of(Word.ALONG)}, 1")):
            t.store(t.get(self.y), target, Y)  # and z, which is 1 above it
            t.store("1", target, Y + 4, "i32")
        self.count_writes()
        counted = t.call("PyLong_FromLongLong", recorded)
        self.made(counted)
        epoch = t.cell(t.load("%queue", at.queue["epoch"]))
        with t.where(t.same(conflict, 0)):
            t.call("Py_IncRef", t.get(epoch), returns="void")
        with t.where(t.new(f"icmp ne i64 {conflict}, 0")):
            fresh = t.call("PyIter_Next", self.of(Word.EPOCHS))
            with t.where(t.same(fresh, 0)):
                t.call("Py_DecRef", counted, returns="void")
            self.made(fresh)
            t.set(epoch, fresh)
        self.note(t.get(epoch), counted, conflict)

    def count_writes(self) -> None:
        """Makes the numbers that the arguments' counters become."""
        t = self.t
        count, rows = self.rows(Word.ARRAYS, Word.ARRAY_ROWS)
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
                self.made(more)
                t.store(more, row, 8 * Row.NEW)

    def made(self, value: str) -> None:
        """Leaves where there was no memory for an object."""
        t = self.t
        with t.where(t.same(value, 0)):
            t.call("PyErr_Clear", returns="void")
        t.unless(t.new(f"icmp ne i64 {value}, 0"), "held")

    def conflict(self) -> str:
        """1 where a command since the last barrier has to come before this one, else 0."""
        t, at = self.t, self.layout
        epoch = self.number(t.load("%queue", at.queue["epoch"]))
        found = t.cell("0")
        count, rows = self.rows(Word.ARRAYS, Word.ARRAY_ROWS)
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
        """Fills the argument block."""
        t = self.t
        count, rows = self.rows(Word.FIELDS, Word.FIELD_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Field.WORDS)
            array, place = t.load(row, 8 * Field.ARRAY), t.load(row, 8 * Field.PLACE)
            kind = t.load(row, 8 * Field.KIND)
            goal = t.new(f"add i64 {target}, {t.load(row, 8 * Field.TARGET)}")
            value, done = t.cell("0"), t.label("done")
            is_other = t.same(array, LITERAL)
            with t.where(t.new(f"xor i1 {is_other}, true")):
                t.set(value, self.operand(array, place))
            with t.where(is_other):
                self.other(t.load("%args", place), kind, goal, value, done)
            least, most = t.load(row, 8 * Field.LEAST), t.load(row, 8 * Field.MOST)
            found = t.get(value)
            inside = t.new(
                f"and i1 {t.new(f'icmp sge i64 {found}, {least}')}, {t.new(f'icmp sle i64 {found}, {most}')}"
            )
            t.unless(inside, self.refused)
            for size in (8, 4, 2, 1):
                with t.where(t.same(t.load(row, 8 * Field.BYTES), size)):
                    narrow = found if size == 8 else t.new(f"trunc i64 {found} to i{8 * size}")
                    t.store(narrow, goal, 0, f"i{8 * size}")
            t.begin(done)

    def other(self, given: str, kind: str, goal: str, value: str, done: str) -> None:
        """A field of an argument that is no array: a float goes to its place at once, an integer into the variable."""
        t = self.t
        with t.where(t.same(kind, Kind.INTEGER)):
            t.set(value, self.number(given))
        with t.where(t.same(kind, Kind.TRUTH)):
            t.set(value, t.new(f"zext i1 {t.same(given, id(True))} to i64"))
        sources = {"PyFloat_AsDouble": (Kind.SINGLE, Kind.DOUBLE)}
        sources["PyLong_AsDouble"] = (Kind.SINGLE_OF_INTEGER, Kind.DOUBLE_OF_INTEGER)
        for function, (single, double) in sources.items():
            with t.where(t.new(f"or i1 {t.same(kind, single)}, {t.same(kind, double)}")):
                number = t.call(function, given, returns="double")
                self.sound(t.new(f"fcmp oeq double {number}, -1.0"))
                with t.where(t.same(kind, double)):
                    t.store(number, goal, 0, "double")
                    t.put(f"br label %{done}")
                    t.at(t.label("unused"))
                short = t.new(f"fptrunc double {number} to float")
                infinite = [
                    t.new(f"fcmp oeq {k} {t.new(f'call {k} @llvm.fabs.{s}({k} {v})')}, 0x7FF0000000000000")
                    for k, s, v in (("float", "f32", short), ("double", "f64", number))
                ]
                t.unless(t.new(f"icmp eq i1 {infinite[0]}, {infinite[1]}"), self.refused)
                t.store(short, goal, 0, "float")
                t.put(f"br label %{done}")
                t.at(t.label("unused"))

    def replace(self, value: str, base: str, offset: int) -> None:
        """Sets a slot."""
        t = self.t
        t.call("Py_IncRef", value, returns="void")
        old = t.load(base, offset)
        t.store(value, base, offset)
        t.call("Py_DecRef", old, returns="void")

    def note(self, epoch: str, counted: str, conflict: str) -> None:
        """Notes the uses and calls the driver. `epoch` and `counted` are references of our own."""
        t, at = self.t, self.layout
        serial = t.load("%queue", at.queue["serial"])
        count, rows = self.rows(Word.ARRAYS, Word.ARRAY_ROWS)
        with t.each(count) as number:
            row = t.row(rows, number, Row.WORDS)
            buffer = t.load(row, 8 * Row.BUFFER)
            is_written = t.new(f"icmp ne i64 {t.load(row, 8 * Row.WRITTEN)}, 0")
            places = f"i64 {at.buffer['write_epoch']}, i64 {at.buffer['read_epoch']}"
            place = t.new(f"select i1 {is_written}, {places}")
            t.call("Py_IncRef", epoch, returns="void")
            old = t.load(buffer, place)
            t.store(epoch, buffer, place)
            t.call("Py_DecRef", old, returns="void")
            self.replace(serial, buffer, at.buffer["last_use"])
            with t.where(is_written):
                self.replace(serial, buffer, at.buffer["last_write"])
            with t.where(t.new(f"icmp ne i64 {t.load(row, 8 * Row.COUNTS)}, 0")):
                given = t.load("%args", t.load(row, 8 * Row.PLACE))
                counter, place = t.load(given, t.load(row, 8 * Row.COUNTER)), t.load(row, 8 * Row.COUNT)
                old = t.load(counter, place)
                t.store(t.load(row, 8 * Row.NEW), counter, place)
                t.call("Py_DecRef", old, returns="void")
        kernel, bound = self.of(Word.KERNEL), t.load("%queue", at.queue["bound"])
        new = t.new(f"icmp ne i64 {bound}, {kernel}")
        flags = t.new(f"or i64 {t.new(f'zext i1 {new} to i64')}, {t.new(f'shl i64 {conflict}, 1')}")
        t.put(f"call void @vkjit_record(i64 {t.new(f'or i64 {self.of(Word.RECORD)}, {flags}')})")
        dropped = t.cell("0")
        for value, name in ((epoch, "epoch"), (counted, "recorded")):
            old = t.load("%queue", at.queue[name])
            t.store(value, "%queue", at.queue[name])
            t.call("Py_DecRef", old, returns="void")
        with t.where(new):
            t.call("Py_IncRef", kernel, returns="void")
            t.store(kernel, "%queue", at.queue["bound"])
            t.set(dropped, bound)
            self.replace(serial, kernel, at.kernel["last_use"])
            self.replace("%queue", kernel, at.kernel["user"])
        self.release()
        t.call("Py_DecRef", t.get(dropped), returns="void")  # last: its finalizer may be Python's code


def launch_code(layout: Layout) -> str:
    """The text of a module with `vkjit_launch`."""
    return _Launch(layout).text()
