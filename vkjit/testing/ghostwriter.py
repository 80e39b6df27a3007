"""Generation of a test file with one property test per kernel, as a start for the user (a "ghostwriter").

For each kernel, a reference in NumPy is guessed from the kernel's body or name. The test uses the guess if the kernel
agrees with it. Without a reference, the test relies on the sanitizer and on the agreement of devices and schedules. If
the kernel fails with arbitrary integers in its input arrays, ranges of valid indices are tried as constraints.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CompileError, VkjitError
from ..frontend.source import source_of
from ..launch.kernel import Kernel
from .checks import first_finding
from .execution.time_limited import time_limited
from .generate.strategies import dtype_of_param

__all__ = ["proposed_tests"]

_FUNCTIONS = {"abs": "np.abs", "exp": "np.exp", "log": "np.log", "sqrt": "np.sqrt", "min": "np.minimum", "max": "np.maximum",
              "sin": "np.sin", "cos": "np.cos", "tanh": "np.tanh", "floor": "np.floor", "ceil": "np.ceil"}  # fmt: skip
"""Functions of `vk` and their equivalents in NumPy."""

_BY_NAME = {
    "sum": ("{0}.sum(axis=-1)", 1), "max": ("{0}.max(axis=-1)", 1), "min": ("{0}.min(axis=-1)", 1),
    "mean": ("{0}.mean(axis=-1)", 1), "transpose": ("np.swapaxes({0}, -1, -2)", 1), "copy": ("{0}", 1),
    "reverse": ("{0}[::-1]", 1), "cumsum": ("np.cumsum({0}, axis=-1)", 1), "matmul": ("{0} @ {1}", 2),
    "gemm": ("{0} @ {1}", 2), "gather": ("{0}[{1}]", 2), "take": ("{0}[{1}]", 2),
}  # fmt: skip
"""Candidate references by a part of the kernel's name.

A candidate is a pair: a template for the names of the kernel's input arrays, and the number of these arrays.
"""


def proposed_tests(kernels: Mapping[str, Kernel], path: Path, *, examples: int = 50, target: Path | None = None) -> str:
    """Return the text of a test file for the kernels of the file at `path`.

    kernels: the kernels by their names in the file. examples: the number of inputs of each test. target: the path to
    which the test file will be written. The test file loads the file of the kernels by a path relative to itself, so
    that both files can be moved together; if `target` is None, by the absolute path.
    """
    tests = [_test(name, kernel, examples) for name, kernel in kernels.items()]
    uses_numpy = any("np." in text for text in tests)
    path_expression = repr(str(path.resolve()))
    if target is not None:
        relative = Path(os.path.relpath(path.resolve(), target.resolve().parent)).as_posix()
        path_expression = f"Path(__file__).parent / {relative!r}"
    loading = [
        f"spec = importlib.util.spec_from_file_location({path.stem!r}, {path_expression})",
        "module = importlib.util.module_from_spec(spec)",
        "spec.loader.exec_module(module)",
    ]
    numpy = ["import numpy as np", ""] if uses_numpy else []
    paths = [] if target is None else ["from pathlib import Path"]
    head = [
        f'"""Property tests of {path.name}: what can be told from the kernels themselves. Add what you know of them."""', "",
        "import importlib.util", *paths, "", *numpy, "import vkjit as vk", "", *loading,
    ]  # fmt: skip
    return "\n".join([*head, "", "", "\n\n\n".join(tests), ""])


def _test(name: str, kernel: Kernel, examples: int) -> str:
    """Return the text of the test of one kernel, or a comment if the kernel can't be run on its own."""
    settings = _settings(kernel)
    if settings is None:
        return f"# {name} isn't tested: it needs groups=, or values for a Const parameter"
    reference = next((r for r in _guesses(kernel) if _agrees(kernel, r, settings)), "")
    inputs = "".join(f", {key}={value!r}" for key, value in settings.items())
    lines = [f"def test_{name}():"]
    if reference:
        lines.append(f"    vk.testing.check_kernel(module.{name}, {reference}, max_examples={examples}{inputs})")
    else:
        lines.append(
            "    # without a reference: bounds, races, uninitialised reads, agreement of devices and schedules"
        )
        lines.append(f"    vk.testing.check_kernel(module.{name}, max_examples={examples}{inputs})")
    return "\n".join(lines)


def _settings(kernel: Kernel) -> dict[str, Any] | None:
    """Return arguments of `check_kernel` with which the kernel passes without a reference.

    Tries no arguments first. Then, for each dimension, tries its valid indices as the range of all integer input
    arrays. If the kernel always fails, returns {}. Returns None if the kernel can't be run without other settings, such
    as `groups=`.
    """
    candidates: list[dict[str, Any]] = [{}]
    # input arrays of integers; a type with `__bound__` is a type variable, which isn't limited to integers
    integers = [
        p.name for p in kernel.expanded_spec.params
        if p.kind == "array" and p.mode == "in" and not hasattr(p.dtype, "__bound__") and dtype_of_param(p, {}).is_integer
    ]  # fmt: skip
    names = list(dict.fromkeys(n for p in kernel.spec.params if p.dims is not None for n in p.dims.names))
    candidates += [{"elements": dict.fromkeys(integers, (0, f"{n}-1"))} for n in names if integers]
    first_tried: dict[str, Any] | None = None
    for settings in candidates:
        finding = _finding(kernel, None, settings)
        if finding is None:
            return settings
        if isinstance(finding, VkjitError):
            return None
        first_tried = settings if first_tried is None else first_tried
    return first_tried


def _finding(kernel: Kernel, reference: Any, settings: Mapping[str, Any]) -> Any:
    """Run a short check. Return its finding, None if the kernel passes, or the VkjitError that the check raises."""
    try:
        with time_limited(10.0):
            return first_finding(kernel, reference, devices="interpreter", max_examples=20, seed=1, **settings)
    except VkjitError as error:
        return error


def _guesses(kernel: Kernel) -> Iterator[str]:
    """Yield guesses of the kernel's reference, each as the text of a lambda."""
    translated = _translated(kernel)
    if translated:
        yield translated
    inputs = [p.name for p in kernel.spec.params if p.kind == "array" and p.mode != "out"]
    for part, (text, count) in _BY_NAME.items():
        if part in kernel.name and len(inputs) == count:
            yield f"lambda {', '.join(inputs)}: {text.format(*inputs)}"


def _agrees(kernel: Kernel, reference: str, settings: Mapping[str, Any]) -> bool:
    """True if the kernel agrees with a guessed reference, given as the text of a lambda."""
    function = _function(reference)
    try:
        return function is not None and _finding(kernel, function, settings) is None
    except Exception:  # noqa: BLE001  a wrong guess may raise anything
        return False


def _function(text: str) -> Any:
    """Return a function that computes what the lambda with this text does.

    The function interprets the lambda's AST instead of using `eval`, so that it can only use NumPy, operators and its
    arguments.
    """
    import operator

    import numpy as np

    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Lambda)
    names = [a.arg for a in tree.args.args]
    binary = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
              ast.MatMult: operator.matmul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}  # fmt: skip

    def value(node: ast.AST, env: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Name):
            return np if node.id == "np" else env[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand, env)
        if isinstance(node, ast.BinOp) and type(node.op) in binary:
            return binary[type(node.op)](value(node.left, env), value(node.right, env))
        if isinstance(node, ast.Attribute):
            return getattr(value(node.value, env), node.attr)
        if isinstance(node, ast.Call):
            keywords = {k.arg: value(k.value, env) for k in node.keywords if k.arg}
            return value(node.func, env)(*(value(a, env) for a in node.args), **keywords)
        if isinstance(node, ast.Subscript):
            is_slice = isinstance(node.slice, ast.Slice)  # guesses contain no other slice than [::-1]
            return value(node.value, env)[::-1] if is_slice else value(node.value, env)[value(node.slice, env)]
        raise VkjitError(f"a guess of this form isn't known: {ast.dump(node)[:60]}")

    def function(*given: Any) -> Any:
        return value(tree.body, dict(zip(names, given, strict=True)))

    # a check passes a reference the arguments that its signature names
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names]
    )
    return function


def _translated(kernel: Kernel) -> str:
    """Translate the kernel's body into a reference, the text of a lambda. Returns "" if the body isn't elementwise.

    The body must consist of two assignments: of an index `i`, and of `y[i] = expression`. The expression may use
    elements of arrays at `i`, scalars, and functions that NumPy has, too.
    """
    try:
        body = [s for s in source_of(kernel.spec.fn).node.body if not _is_text(s)]
    except CompileError:
        return ""
    if kernel.spec.over is None or len(body) != 2 or not all(isinstance(s, ast.Assign) for s in body):
        return ""
    index, store = body
    assert isinstance(index, ast.Assign) and isinstance(store, ast.Assign)
    store_target, index_target = store.targets[0], index.targets[0]
    if not (
        isinstance(store_target, ast.Subscript) and ast.dump(store_target.slice) == ast.dump(_loaded(index_target))
    ):
        return ""
    parameters = [p.name for p in kernel.spec.params if p.kind != "const" and p.mode != "out"]
    expression = _Elementwise(ast.dump(_loaded(index_target)), set(parameters)).visit(
        ast.parse(ast.unparse(store.value), mode="eval").body
    )
    used = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)} - {"np"}
    uses_vk = any(isinstance(n, ast.Name) and n.id == "vk" for n in ast.walk(expression))
    if uses_vk or not used <= set(parameters):
        return ""
    return f"lambda {', '.join(p for p in parameters if p in used)}: {ast.unparse(expression)}"


def _is_text(statement: ast.stmt) -> bool:
    """True for a statement that is only a constant, such as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _loaded(node: ast.AST) -> ast.expr:
    """Return an assignment's target as an expression that reads it, for comparison with other reads by `ast.dump`."""
    return ast.parse(ast.unparse(node), mode="eval").body


class _Elementwise(ast.NodeTransformer):
    """An AST transformer that rewrites x[i] to x, and functions of `vk` such as vk.exp to those of NumPy.

    `index` is the `ast.dump` of the index expression `i`. `names` are the kernel's parameters.
    """

    def __init__(self, index: str, names: set[str]) -> None:
        self.index, self.names = index, names

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.names and ast.dump(node.slice) == self.index:
            return node.value
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "vk" and node.attr in _FUNCTIONS:
            return ast.parse(_FUNCTIONS[node.attr], mode="eval").body
        return self.generic_visit(node)
