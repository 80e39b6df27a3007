"""Loops that can be stopped: now and then a kernel asks its watch whether to go on.

Enters: loops being written. Leaves: a count of rounds that is run down, and where it has run out, a question (`watch.POLL`);
the answer may end the function. Holds: a loop without other loops inside asks in blocks of rounds, so that its own rounds
cost nothing; all others count each round. What surely ends soon never asks, nor do counted loops that carry so many vectors
that a call would cost them registers: those end by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.cancellation import poll_call, poll_text
from .context import Generator
from .control_flow import LoopState

__all__ = ["HALTED", "at_iteration", "charge", "fill", "has_room", "in_blocks", "look"]

HALTED = "halted"
"""The label of the block that ends the function."""
_FUEL = 1 << 18
"""Rounds between two questions: some milliseconds at most."""


_MAX_CARRIED = 8
"""Vectors carried by loops around a question."""


def has_room(g: Generator, state: LoopState) -> bool:
    """Whether a counted loop, and those around it, carry few enough vectors to be asked in."""
    states = [s for s in g.loops if isinstance(s, LoopState)] + [state]
    return sum(len(cell.pointers) for s in states for cell in s.carried if cell.varying) <= _MAX_CARRIED


def fill(g: Generator) -> None:
    """Begins to count, in the function's first block."""
    g.fuel = g.text.variable("i64", "fuel")
    g.text.store("i64", str(_FUEL), g.fuel)


def charge(g: Generator, kind: str, rounds: str) -> None:
    """Counts rounds (an unsigned integer of type `kind`) that were run without a question."""
    wide = rounds
    if rounds.startswith("%"):
        wide = g.resized(rounds, kind, "i64")
    left = g.text.op(f"sub i64 {g.text.load('i64', g.fuel)}, {wide}")
    g.text.store("i64", left, g.fuel)


def look(g: Generator, rounds: int = 1) -> None:
    """Counts rounds, and asks where the count has run out."""
    text = g.text
    charge(g, "i64", str(rounds))
    asking, onward = text.new_label("asking"), text.new_label("onward")
    text.branch(text.op(f"icmp slt i64 {text.load('i64', g.fuel)}, 0"), asking, onward, likely=False)
    text.label(asking)
    text.store("i64", str(_FUEL), g.fuel)
    g.helpers["poll"] = poll_text(g.features)
    stop = text.op(poll_call(g.features))
    text.branch(stop, HALTED, onward, likely=False)
    text.label(onward)


Test = Callable[[str, str, str], None]
"""Writes the test at a loop's head, from the labels of the head, the body and what follows the loop."""


def at_iteration(g: Generator, kind: str, trips: str, done: Callable[[], str]) -> Test:
    """The test of a loop of `trips` rounds (unsigned, of type `kind`), of which `done()` are over."""

    def test(_head: str, body: str, leave: str) -> None:
        g.text.branch(g.text.op(f"icmp ult {kind} {done()}, {trips}"), body, leave)

    return test


def in_blocks(g: Generator, kind: str, trips: str, done: Callable[[], str]) -> Test:
    """As `at_iteration`; asks now and then."""
    if int(kind[1:]) < 32 or (trips.isdecimal() and int(trips) <= _FUEL):
        return at_iteration(g, kind, trips, done)
    text = g.text
    limit = text.variable(kind, "limit")
    text.store(kind, _minimum(g, kind, trips), limit)

    def test(head: str, body: str, leave: str) -> None:
        ended, more = text.new_label("ended"), text.new_label("more")
        text.branch(text.op(f"icmp ult {kind} {done()}, {text.load(kind, limit)}"), body, ended)
        text.label(ended)
        now = text.load(kind, limit)
        left = text.op(f"sub {kind} {trips}, {now}")
        text.branch(text.op(f"icmp ne {kind} {left}, 0"), more, leave, likely=False)
        text.label(more)
        text.store(kind, text.op(f"add {kind} {now}, {_minimum(g, kind, left)}"), limit)
        look(g, _FUEL)
        text.jump(head)

    return test


def _minimum(g: Generator, kind: str, number: str) -> str:
    return g.text.call(kind, f"llvm.umin.{kind}", f"{kind} {number}", f"{kind} {_FUEL}")
