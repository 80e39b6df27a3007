"""Safepoints: loops poll the thread's cancellation token from time to time, and the kernel returns if it is set.

A variable counts down the iterations until the next poll, the "fuel". A counted loop without inner loops polls between
blocks of iterations, so the iterations themselves cost nothing. Other loops count each iteration. Counted loops don't
poll if they certainly end soon, or if they are inside of other loops and carry many vectors: the outermost loop polls.
See `runtime.cancellation`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.cancellation import poll_call, poll_text
from .context import Generator
from .control_flow import LoopState

__all__ = ["HALTED", "at_iteration", "charge", "fill", "in_blocks", "is_crowded", "look"]

HALTED = "halted"
"""Label of the block through which a canceled kernel returns."""
_FUEL = 1 << 18
"""Initial fuel: about the number of iterations between two polls, a few milliseconds at most."""


_MAX_CARRIED = 8
"""Maximum number of loop-carried vectors, over all enclosing loops, at a poll in the inner one of two loops."""


def is_crowded(g: Generator, state: LoopState) -> bool:
    """True if a loop inside of another one and its enclosing loops carry so many vectors that a poll costs registers."""
    states = [s for s in g.loops if isinstance(s, LoopState)]
    vectors = sum(len(cell.pointers) for s in (*states, state) for cell in s.carried if cell.varying)
    return bool(states) and vectors > _MAX_CARRIED


def fill(g: Generator) -> None:
    """Emit the fuel variable and its initial value, in the function's first block."""
    g.fuel = g.text.variable("i64", "fuel")
    g.text.store("i64", str(_FUEL), g.fuel)


def charge(g: Generator, kind: str, rounds: str) -> None:
    """Subtract a number of iterations (an unsigned integer of type `kind`) from the fuel, without a poll."""
    wide = rounds
    if rounds.startswith("%"):
        wide = g.resized(rounds, kind, "i64")
    left = g.text.op(f"sub i64 {g.text.load('i64', g.fuel)}, {wide}")
    g.text.store("i64", left, g.fuel)


def look(g: Generator, rounds: int = 1) -> None:
    """Subtract iterations from the fuel, and poll if it is used up."""
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


_NESTED_BLOCK = 64
"""Number of iterations between safepoints in a loop with inner loops."""

Test = Callable[[str, str, str], None]
"""Emits the exit test at a loop's head. Parameters: the labels of the head, the body and the block after the loop."""


def at_iteration(g: Generator, kind: str, trips: str, done: Callable[[], str]) -> Test:
    """Return the exit test of a loop with the trip count `trips` (unsigned, of type `kind`).

    `done()` emits the number of completed iterations.
    """

    def test(_head: str, body: str, leave: str) -> None:
        g.text.branch(g.text.op(f"icmp ult {kind} {done()}, {trips}"), body, leave)

    return test


def in_blocks(g: Generator, kind: str, trips: str, done: Callable[[], str], nested: bool) -> Test:
    """Return an exit test like `at_iteration`'s, with a safepoint between blocks of iterations if there may be several.

    The blocks are an outer loop, so that the poll's call costs no registers in the inner one. `nested`: the loop has
    inner loops, which count their own iterations.
    """
    size = _NESTED_BLOCK if nested else _FUEL
    if (int(kind[1:]) < 32 and not nested) or (trips.isdecimal() and int(trips) <= size):
        return at_iteration(g, kind, trips, done)
    text = g.text
    limit, block = text.variable(kind, "limit"), text.new_label("block")
    text.jump(block)
    text.label(block)
    begun = done()
    part = text.call(kind, f"llvm.umin.{kind}", f"{kind} {text.op(f'sub {kind} {trips}, {begun}')}", f"{kind} {size}")
    text.store(kind, text.op(f"add {kind} {begun}, {part}"), limit)

    def test(_head: str, body: str, leave: str) -> None:
        ended, more = text.new_label("ended"), text.new_label("more")
        text.branch(text.op(f"icmp ult {kind} {done()}, {text.load(kind, limit)}"), body, ended)
        text.label(ended)
        text.branch(text.op(f"icmp ult {kind} {text.load(kind, limit)}, {trips}"), more, leave, likely=False)
        text.label(more)
        look(g, size)
        text.jump(block)

    return test
