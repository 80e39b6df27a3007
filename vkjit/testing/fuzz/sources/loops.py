"""Programs in Python whose loops are left in all ways: `break`, `continue`, `return`, at ends that differ by invocation."""

from __future__ import annotations

from random import Random

__all__ = ["loops"]

_NAMES = ("a", "b", "c")


class _Writer:
    """Writes the body of a function of `x`, `n` and the variables `_NAMES`, whose values stay below 1009.

    `counters` are the induction variables in scope. Values fit into 16 bits at any time.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.counters: list[str] = []
        self.count = 0

    def value(self) -> str:
        """Return a variable, an induction variable or a constant."""
        return self.random.choice([*_NAMES, "x", *self.counters * 2, str(self.random.randint(-3, 9))])

    def bound(self) -> str:
        """Return the end of a loop: it lies between -4 and 12."""
        low, high = self.random.randint(-4, 3), self.random.randint(4, 12)
        return self.random.choice([
            f"min(max(x, {low}), {high})", f"max(min(x, {high}), {low})", f"min(x % 13, {high})", f"max(x % 12, {low})",
            f"({high} if x > {high} else x % 7)", f"n + {low}", f"x - x + {high}", f"vk.clamp(x, {low}, {high})",
        ])  # fmt: skip

    def statement(self, indent: str, depth: int, step: str, in_loop: bool) -> None:
        """Write a statement. `step` is the text that must precede a `continue`."""
        random, out = self.random, self.lines
        form = random.randint(0, 11)
        if form < 5 or depth > 2:
            target = random.choice(_NAMES)
            out.append(f"{indent}{target} = ({target} * {random.randint(1, 7)} + {self.value()}) % 1009")
        elif form < 6:
            out.append(f"{indent}{', '.join(random.sample(_NAMES, 2))} = {self.value()}, {random.choice(_NAMES)}")
        elif form < 9:
            out.append(f"{indent}if {self.value()} % {random.randint(2, 4)} {random.choice(['==', '!=', '>'])} 1:")
            self.block(
                f"{indent}    ", depth + 1, step, in_loop, self.random.choice(["", "", "break", "continue", "return"])
            )
            if random.random() < 0.4:
                out.append(f"{indent}else:")
                self.block(f"{indent}    ", depth + 1, step, in_loop, "")
        else:
            self.loop(indent, depth)

    def block(self, indent: str, depth: int, step: str, in_loop: bool, end: str) -> None:
        """Write a few statements and an exit; `end` is "" for none."""
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent, depth, step, in_loop)
        if end == "return":
            self.lines.append(f"{indent}return {self.random.choice(_NAMES)} + {self.value()} * 3")
        elif end and in_loop:
            if end == "continue" and step:
                self.lines.append(f"{indent}{step}")
            self.lines.append(f"{indent}{end}")

    def loop(self, indent: str, depth: int) -> None:
        """Write a loop that counts from a constant, or from a parameter, up or down."""
        random, out = self.random, self.lines
        self.count += 1
        counter = f"j{self.count}"
        step = random.choice([1, 1, 2, -1, -1, -3])
        start = random.choice(["0", "n", "2"]) if step > 0 else random.choice(["10", "n + 9", "12"])
        inside, end = f"{indent}    ", self.bound()
        form = random.choice(["for", "for", "while", "until", "until"])
        advance = f"{counter} {'+' if step > 0 else '-'}= {abs(step)}"
        if form == "for":
            out.append(f"{indent}for {counter} in range({start}, {end}, {step}):")
        else:
            out.append(f"{indent}{counter} = x - x + {start}")
            test = f"{counter} {'<' if step > 0 else '>'} {end}"
            out.append(f"{indent}while {test if form == 'while' else 'True'}:")
        self.counters.append(counter)
        if form == "until":
            before = random.random() < 0.5
            if not before:
                self.block(inside, depth + 1, "", False, "")
            out.append(f"{inside}{random.choice(_NAMES)} = ({random.choice(_NAMES)} * 3 + {counter}) % 1009")
            out.append(f"{inside}{advance}")
            out.append(f"{inside}if {counter} {'>=' if step > 0 else '<='} {end}:")
            out.append(f"{inside}    break")
            if before:
                self.block(inside, depth + 1, "", False, "")
        else:
            self.block(inside, depth + 1, "" if form == "for" else advance, True, "")
            if form == "while":
                out.append(f"{inside}{advance}")
        self.counters.pop()


def loops(random: Random) -> str:
    """Nested loops of all forms in a function, of which each invocation takes another path."""
    element = random.choice(["i32", "i32", "i64", "i16"])
    writer = _Writer(random)
    while writer.count < 2:
        writer.statement("    ", 0, "", False)
    body = "\n".join(writer.lines)
    return f"""
def clamp(v, low, high):
    return min(max(v, low), high)


def plain(x, n):
    a, b, c = x % 11, 1, x % 7
{body.replace("vk.clamp", "clamp")}
    return a + b * 2 + c * 3


@vk.func
def f(x, n):
    a, b, c = x % 11, x - x + 1, x % 7
{body}
    return a + b * 2 + c * 3


@vk.kernel(over="o")
def k(x: vk.In[{element}, "N"], n: {element}, o: vk.Out[{element}, "N"]):
    i = vk.global_id(0)
    o[i] = f(x[i], n)


X = np.random.default_rng({random.randrange(1000)}).integers(-20, 40, 37).astype(vk.{element}.storage)


def run():
    return [k(X, {(n := random.choice([0, 0, 1, 3]))})]


def expected():
    return [np.array([plain(int(v), {n}) for v in X]).astype(vk.{element}.storage)]
"""
