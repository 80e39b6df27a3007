"""Machine code that records a launch into the current stream's open command buffer; see `runtime.machine_code`.

It holds the GIL and, after looking up the stream's queue, runs no Python code before the launch is complete, so that
other threads and signal handlers never observe a partial launch.
"""

from __future__ import annotations

from enum import IntEnum

from vkjit.runtime.machine_code.abi import Layout, Row, Word
from vkjit.runtime.machine_code.launch_code import API, OBJECTS, LaunchCode
from vkjit.runtime.machine_code.llvm_text import Text

from .. import record

__all__ = ["TABLE", "QueueWord", "launch_code"]

TABLE = (
    *API, "PyIter_Next", "PyLong_AsUnsignedLongLong", "PyObject_Call",
    *OBJECTS, "NO_WAIT", "Queue",
)  # fmt: skip


class QueueWord(IntEnum):
    """The back end's words of a plan: the kernel, the function that returns the current queue, its lock, the iterator of epochs."""

    KERNEL, CURRENT, LOCK, ACQUIRE, RELEASE, EPOCHS = range(Word.OWN, Word.OWN + 6)


class _QueueLaunch(LaunchCode):
    """Generator of launches that a queue records."""

    def enter(self) -> None:
        """Look up the current stream's queue."""
        t = self.t
        self.queue = t.call("PyObject_CallNoArgs", self.of(QueueWord.CURRENT))
        t.unless(t.new(f"icmp ne i64 {self.queue}, 0"), "nothing")

    def leave(self) -> None:
        self.t.call("Py_DecRef", self.queue, returns="void")

    def check_plan(self) -> None:
        pass

    def check_buffer(self, buffer: str, written: str) -> None:
        """Check the buffer's owner queue, and that a written one has no readers in other queues."""
        t, at = self.t, self.layout.buffer
        t.unless(t.same(t.load(buffer, at["queue"]), self.queue), "refused")
        alone = t.same(t.load(buffer, at["readers"]), t.known("None"))
        t.unless(t.new(f"or i1 {t.same(written, 0)}, {alone}"), "refused")

    def execute(self) -> None:
        self.lock()
        self.record()

    def undo(self) -> None:
        self.release()

    def lock(self) -> None:
        """Acquire the queue's lock without waiting, or branch to `refused`."""
        t, queue = self.t, self.layout.own["Queue"]
        t.unless(t.same(t.load(self.queue, self.layout.type), t.known("Queue")), "refused")
        t.unless(t.same(t.load(self.queue, queue["lock"]), self.of(QueueWord.LOCK)), "refused")
        # an existing tuple: creating one may run the garbage collector (before Python 3.12), and finalizers may launch
        answer = t.call("PyObject_Call", self.of(QueueWord.ACQUIRE), t.known("NO_WAIT"), "0")
        with t.where(t.same(answer, 0)):
            t.call("PyErr_Clear", returns="void")
        t.unless(t.new(f"icmp ne i64 {answer}, 0"), "refused")
        t.call("Py_DecRef", answer, returns="void")
        t.unless(t.same(answer, t.known("True")), "refused")
        self.refused = "held"

    def release(self) -> None:
        t = self.t
        answer = t.call("PyObject_CallNoArgs", self.of(QueueWord.RELEASE))
        t.call("Py_DecRef", answer, returns="void")

    def record(self) -> None:
        """Emit the part that runs under the lock. Everything that can fail comes before `commit`."""
        t, queue = self.t, self.layout.own["Queue"]
        handle = self.number(t.load(self.queue, queue["command_handle"]))
        t.unless(t.new(f"icmp ne i64 {handle}, 0"), "held")
        recorded = t.new(f"add i64 {self.number(t.load(self.queue, queue['recorded']))}, 1")
        t.unless(t.new(f"icmp slt i64 {recorded}, {self.number(t.load(self.queue, queue['budget']))}"), "held")
        hazard = self.hazard()
        transferred = t.load(self.queue, queue["transferred"])
        t.unless(t.new(f"or i1 {t.same(hazard, 0)}, {t.same(transferred, t.known('False'))}"), "held")
        target = self.of(Word.RECORD)
        self.fields(target)
        t.store(handle, target, record.COMMAND)
        for groups, offset in zip(self.groups, (record.GRID_X, record.GRID_YZ, record.GRID_YZ + 4), strict=True):
            t.store(t.new(f"trunc i64 {t.get(groups)} to i32"), target, offset, "i32")
        self.count_writes()
        counted = t.call("PyLong_FromLongLong", recorded)
        self.check_made(counted)
        epoch = t.cell(t.load(self.queue, queue["epoch"]))
        with t.where(t.same(hazard, 0)):
            t.call("Py_IncRef", t.get(epoch), returns="void")
        with t.where(t.new(f"icmp ne i64 {hazard}, 0")):
            fresh = t.call("PyIter_Next", self.of(QueueWord.EPOCHS))
            with t.where(t.same(fresh, 0)):
                t.call("Py_DecRef", counted, returns="void")
            self.check_made(fresh)
            t.set(epoch, fresh)
        self.commit(t.get(epoch), counted, hazard)

    def hazard(self) -> str:
        """Compute 1 if a command since the last barrier must complete before this launch, else 0."""
        t, at, queue = self.t, self.layout, self.layout.own["Queue"]
        epoch = self.number(t.load(self.queue, queue["epoch"]))
        found = t.cell("0")
        with self.each_row(Word.ARRAYS, Row.WORDS) as (_, row):
            buffer = t.load(row, 8 * Row.BUFFER)
            written = self.number(t.load(buffer, at.buffer["write_epoch"]))
            with t.where(t.same(written, epoch)):
                t.set(found, "1")
            with t.where(t.new(f"icmp ne i64 {t.load(row, 8 * Row.WRITTEN)}, 0")):
                read = self.number(t.load(buffer, at.buffer["read_epoch"]))
                with t.where(t.same(read, epoch)):
                    t.set(found, "1")
        return t.get(found)

    def commit(self, epoch: str, counted: str, hazard: str) -> None:
        """Update the state of the buffers, the kernel and the queue, and call the driver.

        Takes over the references to `epoch` and `counted`.
        """
        t, at, queue = self.t, self.layout, self.layout.own["Queue"]
        serial = t.load(self.queue, queue["serial"])
        with self.each_row(Word.ARRAYS, Row.WORDS) as (_, row):
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
        kernel, bound = self.of(QueueWord.KERNEL), t.load(self.queue, queue["bound"])
        is_new = t.new(f"icmp ne i64 {bound}, {kernel}")
        flags = t.new(f"or i64 {t.new(f'zext i1 {is_new} to i64')}, {t.new(f'shl i64 {hazard}, 1')}")
        t.put(f"call void @vkjit_record(i64 {t.new(f'or i64 {self.of(Word.RECORD)}, {flags}')})")
        dropped = t.cell("0")
        self.put(epoch, self.queue, queue["epoch"])
        self.put(counted, self.queue, queue["recorded"])
        with t.where(is_new):
            t.call("Py_IncRef", kernel, returns="void")
            t.store(kernel, self.queue, queue["bound"])
            t.set(dropped, bound)
            self.replace(serial, kernel, self.layout.own["VulkanKernel"]["last_use"])
            self.replace(self.queue, kernel, self.layout.own["VulkanKernel"]["user"])
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
    return (
        _QueueLaunch(layout, TABLE).text() + method + record.TEXT.replace("define void", "define internal void") + ends
    )
