"""A builder of LLVM assembly, one function at a time. Numbers and addresses are i64 unless stated otherwise.

The text contains no absolute addresses, so that other processes can reuse its machine code: C API functions and Python
objects are loaded from a table, whose address is the variable `%table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Text"]


class Text:
    """The instructions of one function. Methods that return a string return the name of a value or a label."""

    def __init__(self, table: Sequence[str]) -> None:
        """`table` has the names of the items in the table, in order."""
        self.lines: list[str] = []
        self._table = {name: 8 * number for number, name in enumerate(table)}
        self._count = 0

    def new(self, what: str) -> str:
        self._count += 1
        self.lines.append(f"  %v{self._count} = {what}")
        return f"%v{self._count}"

    def put(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self, stem: str = "l") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def at(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def begin(self, label: str) -> None:
        self.put(f"br label %{label}")
        self.at(label)

    def pointer(self, base: str, offset: int | str = 0) -> str:
        address = base if offset == 0 else self.new(f"add i64 {base}, {offset}")
        return self.new(f"inttoptr i64 {address} to ptr")

    def load(self, base: str, offset: int | str = 0) -> str:
        return self.new(f"load i64, ptr {self.pointer(base, offset)}")

    def store(self, value: str, base: str, offset: int | str = 0, kind: str = "i64") -> None:
        self.put(f"store {kind} {value}, ptr {self.pointer(base, offset)}, align 1")

    def call(self, name: str, *arguments: str, returns: str = "i64") -> str:
        function = self.new(f"inttoptr i64 {self.known(name)} to ptr")
        given = ", ".join(f"i64 {a}" for a in arguments)
        if returns == "void":
            self.put(f"call void {function}({given})")
            return ""
        return self.new(f"call {returns} {function}({given})")

    def known(self, name: str) -> str:
        """Load an item of the table."""
        return self.load("%table", self._table[name])

    def unless(self, condition: str, label: str) -> None:
        """Branch to the label unless the condition holds."""
        after = self.label()
        self.put(f"br i1 {condition}, label %{after}, label %{label}")
        self.at(after)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Execute the instructions of the `with` block only if the condition holds."""
        inside, after = self.label(), self.label()
        self.put(f"br i1 {condition}, label %{inside}, label %{after}")
        self.at(inside)
        yield
        self.begin(after)

    @contextmanager
    def each(self, count: str) -> Iterator[str]:
        """Loop over the numbers below `count`."""
        place = self.cell("0")
        head, body, after = self.label("head"), self.label("body"), self.label("after")
        self.begin(head)
        number = self.get(place)
        more = self.new(f"icmp ult i64 {number}, {count}")
        self.put(f"br i1 {more}, label %{body}, label %{after}")
        self.at(body)
        yield number
        self.set(place, self.new(f"add i64 {number}, 1"))
        self.put(f"br label %{head}")
        self.at(after)

    def cell(self, first: str) -> str:
        """Return a new stack variable with an initial value."""
        self._count += 1
        self.lines.insert(0, f"  %c{self._count} = alloca i64")
        self.set(f"%c{self._count}", first)
        return f"%c{self._count}"

    def space(self, words: int) -> str:
        """Return the address of uninitialized memory on the stack."""
        self._count += 1
        self.lines.insert(0, f"  %c{self._count} = alloca [{words} x i64]")
        return self.new(f"ptrtoint ptr %c{self._count} to i64")

    def get(self, cell: str) -> str:
        return self.new(f"load i64, ptr {cell}")

    def set(self, cell: str, value: str) -> None:
        self.put(f"store i64 {value}, ptr {cell}")

    def same(self, left: str, right: str | int) -> str:
        return self.new(f"icmp eq i64 {left}, {right}")

    def row(self, rows: str, number: str, words: int) -> str:
        return self.new(f"add i64 {rows}, {self.new(f'mul i64 {number}, {8 * words}')}")
