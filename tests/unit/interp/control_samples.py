# mypy: disable-error-code="name-defined"
# ruff: noqa: B007
"""Functions of two integers that cover all control flow allowed in kernels; Python itself computes expected results."""

from __future__ import annotations


def early_return(a, b):
    if a > b:
        return a - b
    if a == b:
        return 100
    return b * 2


def return_in_else(a, b):
    if a < 0:
        x = a + 1
    else:
        return b
    return x * 3


def elif_chain(a, b):
    if a < -2:
        r = 1
    elif a < 0:
        r = 2
    elif a == 0:
        r = 3
    else:
        r = b
    return r


def rebinding(a, b):
    x = a
    if b > 0:
        x = x + b
        x = x * 2
    x = x - 1
    return x


def sum_range(a, b):
    total = 0
    for i in range(a, b):
        total += i * i
    return total


def negative_step(a, b):
    total = 0
    for i in range(b, a, -2):
        total = total * 3 + i
    return total


def last_value(a, b):
    i = 77
    for i in range(a, b, 3):
        pass
    return i


def assigned_loop_variable(a, b):
    total = 0
    for i in range(5):
        total += i
        i = i + a
        total += i * b
    return total + i


def constant_trips(a, b):
    for i in range(3):
        x = i + a
    return x * 10 + i


def break_and_continue(a, b):
    total = 0
    for i in range(10):
        if i == a:
            continue
        if i > b + 3:
            break
        total = total * 2 + i
    return total


def while_loop(a, b):
    n = 0
    while a < b:
        a += 2
        n += 1
    return n * 100 + a


def while_true(a, b):
    n = 0
    while True:
        n += 1
        if n > a:
            found = n * b
            break
        if n > 5:
            found = -n
            break
    return found


def while_true_return(a, b):
    n = a
    while True:
        if n * n > b:
            return n
        n += 1


def nested_loops(a, b):
    total = 0
    for i in range(4):
        for j in range(i, 5):
            if j == a:
                break
            if i == b:
                continue
            total += i * 10 + j
        else:
            total += 1000
    return total


def for_else(a, b):
    for i in range(1, 6):
        if i * a == b:
            result = i
            break
    else:
        result = -1
    return result


def while_else(a, b):
    n = 0
    while n < 4:
        if n == a:
            r = b
            break
        n += 1
    else:
        r = 50
    return r + n


def else_without_break(a, b):
    total = a
    for i in range(3):
        total += i
    else:
        total += b
    return total


def return_from_loops(a, b):
    for i in range(5):
        for j in range(5):
            if i * j == a + 4:
                return i * 100 + j
            if i + j == b + 7:
                return -1
    return 7


def carried_through_branches(a, b):
    x = 0
    y = 1
    for i in range(6):
        if i > a:
            x, y = y, x + y
        elif i == b:
            x = 5
    return x * 100 + y


def conditional_expression(a, b):
    return (a if a > b else b) + (1 if a else 2)


def nested_conditional(a, b):
    return 1 if a < 0 else 2 if a == 0 else 3 if b > a else b


def logic(a, b):
    x = 0
    if a > 0 and b > 0:
        x += 1
    if a > 0 or b > 0:
        x += 2
    if not (a == b):
        x += 4
    if a and not b:
        x += 8
    return x


def logic_values(a, b):
    return (a and b) + 10 * (a or b)


def chained(a, b):
    x = 0
    if -2 <= a < b <= 3:
        x = 1
    if a < b > 0 != a:
        x += 2
    return x


def membership(a, b):
    x = 0
    if a in (1, 2, b):
        x = 1
    if b not in (0, 3):
        x += 2
    return x


def floor_division(a, b):
    d = b if b != 0 else 3
    return (a // d) * 100 + a % d


def powers(a, b):
    return a**2 + b**3 - a**0


def shifts(a, b):
    return (a << 3) + (b >> 1) + (1 << (a & 3))


def bits(a, b):
    return (a & b) + (a | b) * 2 + (a ^ b) * 4 + ~a


def builtins(a, b):
    q, r = divmod(a, 3)
    return min(a, b, 2) + max(a, b) * 10 + abs(a) * 100 + q + r + sum((a, b, 1))


def unrolled(a, b):
    total = 0
    for k in (1, 2, 5):
        total += k * a
    for m, n in ((1, 2), (3, 4)):
        total = total * m + n * b
    for i, k in enumerate((a, b)):
        total += i * k
    return total


def swap(a, b):
    a, b = b, a
    return a * 10 + b


def tuple_carried(a, b):
    p = (a, b)
    for i in range(3):
        p = (p[1], p[0] + i)
    return p[0] * 100 + p[1]


def dead_after_return(a, b):
    return a + b
    return a


def loop_never_runs(a, b):
    x = 5
    for _ in range(3, 1):
        x = a
    return x


def shadowed_builtin(a, b):
    min = a + b
    return min * 2


def literal_branches(a, b):
    x = 1 if a > 0 else 2
    y = 0
    if b > 0:
        y = 3
    return x * 10 + y


def inner_counter(a, b):
    count = 0
    for i in range(4):
        n = 0
        while n < i:
            n += 1
            if n == a:
                break
        count += n
    return count * 2 + b


def loop_in_branch(a, b):
    total = 0
    if a > 0:
        for i in range(a):
            total += i
    else:
        for i in range(b):
            total -= i
    return total


def continue_in_while(a, b):
    n = 0
    total = 0
    while n < 8:
        n += 1
        if n % 2 == 0:
            continue
        total += n * a
    return total + b


def both_exit_in_loop(a, b):
    r = 0
    for i in range(9):
        r += i
        if i > a:
            if b > 0:
                break
            else:
                return -r
        else:
            continue
    return r


def pass_and_docstring(a, b):
    """A docstring has no effect."""
    if a > 0:
        pass
    return b


def compile_time_branch(a, b):
    if True:
        x = a
    else:
        x = undefined_name  # noqa: F821
    return x + (b if False else 1)


def carried_bool(a, b):
    found = False
    for i in range(5):
        found = found or i == a
    return 1 if found else 0


def triangular(a, b):
    total = 0
    for i in range(5):
        for j in range(i):
            for k in range(j):
                total += k * a + j
    return total + b


def unrolled_break(a, b):
    total = 0
    for k in (1, 2, 3, 4):
        if k == b:
            continue
        total = total * 2 + k
        if total > a + 4:
            break
        total += 1
    else:
        total += 100
    return total


def unrolled_break_in_a_loop(a, b):
    total = 0
    for i in range(3):
        for k in (1, 2, 3):
            if i * k == a:
                break
            if k + i == b:
                return total
            total += k
        last = k
        total += last
    return total


def unrolled_static_exits(a, b):
    total = a
    for k in (1, 2, 3, 4):
        if k == 2:
            continue
        if k == 4:
            break
        total += k * b
    return total


def unrolled_early_return(a, b):
    for k in (1, 2, 3):
        if k == a:
            return k * 10 + b
    return -1


SAMPLES = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__]
