"""The text of a standalone script that reproduces a failure.

The script imports the kernel, contains the failing arguments as literals, runs the kernel under the failing schedule,
and compares the result. It raises if the failure still occurs, and prints a message otherwise. The kernel is imported
from its module or file; the source of a kernel that is defined inside a function is copied into the script.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import os
import re
import sys
import textwrap
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from vkjit.dtypes import DType
from vkjit.frontend import DeviceFunction, fields_of
from vkjit.lang.structs import StructType
from vkjit.lang.vectors import VectorType
from vkjit.launch.kernel import Kernel

from ..cases.case import ArrayInput
from ..cases.composites import for_launch
from ..cases.reference import call_by_name
from ..cases.schedules import PLAIN
from ..compare.outputs import Difference
from ..search.finding import Finding

__all__ = ["script_of"]

_MAX_LITERAL = 256
"""Maximum number of elements of an array that is written as a literal; larger arrays become compressed bytes."""

_CHECKS = {"division_by_zero": "division", "loop_limit": "loops", "integer_overflow": "overflow", "nan_birth": "nan"}
"""The sanitizer check to enable for each kind of report that the default checks don't produce."""


def script_of(kernel: Kernel, finding: Finding, groups: Any = None) -> str:
    """Return the script for a finding. `groups` is the user's number of workgroups, or a function that computes it."""
    title = f'"""{kernel.name}: a failing case, found by a property test."""'
    if callable(groups):
        groups = call_by_name(groups, for_launch(kernel.expanded_spec, finding.case.arguments), "groups=")
    blocks = [title, _imports(kernel), _arguments(kernel, finding), _check(finding, groups)]
    return "\n\n".join(blocks) + "\n"


def _imports(kernel: Kernel) -> str:
    """Return the part of the script that binds the name `kernel` to the kernel.

    There are three ways: the kernel is imported if its module is in a package; otherwise its file is loaded; if there
    is no file, or no name for the kernel in it, the source is copied.
    """
    lines = ["import numpy as np", "", "import vkjit as vk"]
    function = kernel.spec.fn
    file = inspect.getsourcefile(function)
    expression = _expression_of(kernel)
    package = getattr(sys.modules.get(function.__module__), "__package__", "")
    if expression and package:
        # a nested name such as "Class.kernel" is imported by its first part
        root_name, _, rest = expression.partition(".")
        imported = f"from {function.__module__} import {root_name} as kernel"
        return "\n".join([*lines, imported, *([f"kernel = kernel.{rest}"] if rest else [])])
    if file is not None and expression and os.path.exists(file):
        loading = f"""
            import importlib.util

            spec = importlib.util.spec_from_file_location({Path(file).stem!r}, {os.path.abspath(file)!r})
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            kernel = module.{expression}"""
        text = textwrap.dedent(loading).strip()
        # the import of the standard library comes before those of NumPy and vkjit
        library_import, rest = text.split("\n\n", 1)
        return "\n".join([library_import, "", *lines, "", rest])
    return "\n".join([*lines, "from typing import Any, TypeVar", "", *_source_with_definitions(kernel)])


def _expression_of(kernel: Kernel) -> str:
    """Return the expression, such as "Class.kernel", that refers to the kernel in its module; "" if there is none.

    Tries the function's qualified name, its name followed by `.__wrapped__` for other decorators around the kernel, and
    all global names that refer to the kernel.
    """
    function = kernel.spec.fn
    module_names = function.__globals__
    wrapped = (function.__name__ + ".__wrapped__" * depth for depth in range(1, 4))
    other = (n for n, v in module_names.items() if isinstance(v, Kernel) and v.spec.fn is function and n.isidentifier())
    for expression in (function.__qualname__, *wrapped, *other):
        names = expression.split(".")
        value = module_names.get(names[0])
        for name in names[1:]:
            value = getattr(value, name, None)
        if isinstance(value, Kernel) and value.spec.fn is function:
            return expression
    return ""


def _source_with_definitions(kernel: Kernel) -> list[str]:
    """Return the lines of the kernel's source, preceded by definitions of the numbers, type variables, structs and
    device functions that the kernel uses.
    """
    function = kernel.spec.fn
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return [f"kernel = ...  # {kernel.name}: its source isn't available"]
    lines = [*_definitions_used(function, set()), *_types_in(kernel, source)]
    variables = {p.dtype.__name__ for p in kernel.spec.params if p.dtype is not None and not isinstance(p.dtype, DType)}
    lines += [f'{name} = TypeVar("{name}", bound=vk.Element)' for name in sorted(variables)]
    # start at the decorator `@vk.kernel`; decorators above it, such as vk.testing.check, are left out
    start = next((i for i, line in enumerate(source.splitlines()) if ".kernel" in line), 0)
    return [*lines, "", "", *source.splitlines()[start:], "", "", f"kernel = {function.__name__}"]


def _definitions_used(function: Any, seen: set[str]) -> list[str]:
    """Return the lines that define the globals and closure variables that a function uses, in dependency order.

    Modules become imports, numbers and types become literals, and device functions are copied. `seen` are the names
    that have been defined before; the function adds its names.
    """
    captured: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        captured[name] = cell.cell_contents
    captured.update({n: function.__globals__[n] for n in function.__code__.co_names if n in function.__globals__})
    lines: list[str] = []
    for name, value in captured.items():
        if name in seen or name in ("vk", "np"):
            continue
        seen.add(name)
        if isinstance(value, ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif isinstance(value, DeviceFunction):
            lines += _device_function(name, value, seen)
        elif _is_plain(value):
            lines.append(f"{name} = {constant_text(value)}")
    return lines


def _device_function(name: str, value: DeviceFunction, seen: set[str]) -> list[str]:
    """Return the lines that bind `name` to a copy of a device function, preceded by the definitions that it uses."""
    function = value.fn
    lines = _definitions_used(function, seen)
    with contextlib.suppress(OSError, TypeError):
        lines += ["", "", *textwrap.dedent(inspect.getsource(function)).splitlines(), ""]
    return lines if name == function.__name__ else [*lines, f"{name} = {function.__name__}"]


def _is_plain(value: Any) -> bool:
    """True for values that the script contains as literals: numbers, strings, types and tuples of them."""
    if isinstance(value, tuple):
        return type(value) is tuple and all(map(_is_plain, value))
    return isinstance(value, (bool, int, float, str, DType, np.generic))


def _types_in(kernel: Kernel, source: str) -> list[str]:
    """Return definitions of the struct and vector types that the kernel's source or parameters use."""
    names = dict.fromkeys(re.findall(r"\w+", source))
    in_module = {n: kernel.spec.fn.__globals__[n] for n in names if n in kernel.spec.fn.__globals__}
    structs: dict[str, StructType] = {}
    for element in (*in_module.values(), *(p.element for p in kernel.spec.params)):
        _add_structs(element, structs)
    vectors = [
        f"{n} = {v!r}" for n, v in in_module.items() if isinstance(v, VectorType) and not isinstance(v.dtype, TypeVar)
    ]
    texts = []
    for struct in structs.values():
        with contextlib.suppress(OSError, TypeError):
            texts.append("\n" + textwrap.dedent(inspect.getsource(struct.cls)).rstrip())
            # the struct's fields may have vector types that its module names
            module_names = sys.modules[struct.cls.__module__].__dict__
            vectors += [
                f"{n} = {module_names[n]!r}"
                for n in re.findall(r"\w+", texts[-1])
                if isinstance(module_names.get(n), VectorType)
            ]
    return [*dict.fromkeys(vectors), *texts]


def _add_structs(element: Any, found: dict[str, StructType]) -> None:
    """Add a struct type to `found`, after the struct types of its fields."""
    if isinstance(element, StructType) and element.name not in found:
        for field in fields_of(element).values():
            _add_structs(field, found)
        found[element.name] = element


def _arguments(kernel: Kernel, finding: Finding) -> str:
    """Return the part of the script that defines the dictionary `arguments`."""
    lines = ["arguments = {"]
    for param in kernel.expanded_spec.params:
        value = finding.case.arguments[param.name]
        lines.append(f"    {param.name!r}: {_argument(value)},")
    return "\n".join([*lines, "}"])


def _argument(value: Any) -> str:
    """Return an argument as an expression. Arrays become calls of `vk.testing.array` or `out` with their layout."""
    if not isinstance(value, ArrayInput):
        return constant_text(value)
    layout = "".join(f", {k}={v!r}" for k, v in _layout_fields(value).items())
    if value.values is None:
        return f"vk.testing.out({value.dtype!r}, {value.shape!r}{layout})"
    expression = array_text(value.distinct)
    if value.distinct_shape != value.shape:
        expression = f"np.broadcast_to({expression}, {value.shape!r})"
    return f"vk.testing.array({expression}, {value.dtype!r}{layout})"


def _layout_fields(value: ArrayInput) -> dict[str, Any]:
    """Return the fields of an array's layout that differ from their defaults."""
    layout = value.layout
    fields = {
        "order": layout.order, "step": layout.step, "backwards": layout.backwards, "repeated": layout.repeated,
        "offset": layout.offset, "inner": layout.inner, "pitch": layout.pitch,
    }  # fmt: skip
    defaults = {"order": None, "step": 1, "backwards": (), "repeated": (), "offset": 0, "inner": 0, "pitch": 0}
    return {k: v for k, v in fields.items() if v != defaults[k]}


def constant_text(value: Any) -> str:
    """Return an argument other than an array as an expression. A device function becomes an import from its module."""
    if isinstance(value, DeviceFunction):
        function = value.fn
        return f'__import__("importlib").import_module({function.__module__!r}).{function.__qualname__}'
    if isinstance(value, tuple):
        return f"({', '.join(map(constant_text, value))}{',' if len(value) == 1 else ''})"
    return number_text(value)


def number_text(value: Any) -> str:
    """Return a number as an expression. NaN and infinities become NumPy's constants."""
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    return repr(value.item() if isinstance(value, np.generic) else value)


def array_text(values: Any) -> str:
    """Return an expression that constructs a NumPy array: a literal, `np.full`, or decompression of its bytes."""
    dtype_text = f"np.{values.dtype.name if values.dtype != np.bool_ else 'bool_'}"
    flat = values.reshape(-1)
    if values.size == 0:
        return f"np.zeros({values.shape!r}, {dtype_text})"
    # all elements have the same bytes
    if values.size > 1 and (flat.view(f"V{flat.itemsize}") == flat[:1].view(f"V{flat.itemsize}")).all():
        return f"np.full({values.shape!r}, {number_text(flat[0])}, {dtype_text})"
    if values.size <= _MAX_LITERAL:
        return f"np.array({_nested(values)}, {dtype_text})"
    packed = base64.b85encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()
    unpacked = f'__import__("zlib").decompress(__import__("base64").b85decode({packed!r}))'
    return f"np.frombuffer({unpacked}, {dtype_text}).reshape({values.shape!r})"


def _nested(values: Any) -> str:
    """Return an array as nested lists."""
    if values.ndim == 0:
        return number_text(values[()])
    return "[" + ", ".join(_nested(v) for v in values) + "]"


def _call(finding: Finding, groups: Any, poison: int | None = None) -> str:
    """Return the call that repeats the failing launch.

    `poison` is the byte that fills the Outs before the launch (None: the byte of the failing launch).
    """
    parts = ["kernel", "arguments", f"device={finding.executor!r}"]
    if finding.schedule != PLAIN:
        given = ", ".join(f"{k}={v!r}" for k, v in finding.schedule.given().items())
        parts.append(f"schedule=vk.testing.Schedule({given})")
    if groups is not None:
        parts.append(f"groups={groups!r}")
    if finding.case.aliases:
        parts.append(f"aliases={list(finding.case.aliases)!r}")
    parts.append(f"poison={finding.poison if poison is None else poison:#x}")
    return f"vk.testing.run({', '.join(parts)})"


def _check(finding: Finding, groups: Any) -> str:
    """Return the last part of the script: the call and a check that depends on the kind of failure."""
    call = _call(finding, groups)
    if finding.kind == "sanitizer":
        groups_text = "" if groups is None else f", groups={groups!r}"
        aliases = f", aliases={list(finding.case.aliases)!r}" if finding.case.aliases else ""
        kind = finding.reports[0].kind
        checks = f", checks={_CHECKS[kind]!r}" if kind in _CHECKS else ""
        options = f"{groups_text}{aliases}{checks}"
        return (
            f"# the sanitizer found {kind}\n"
            f"reports = vk.testing.run_sanitized(kernel, arguments, device={finding.executor!r}{options})\n"
            "assert not reports, '\\n'.join(map(str, reports))\nprint('nothing is found any more')"
        )
    if finding.kind == "property":
        # the script can't contain the property, a function of the user's tests: it prints the outputs instead
        said = "" if finding.error is None else " ".join(finding.error.message.split())
        exit_message = f"this program prints the outputs without checking the property, which failed with: {said}"
        return f"# when it was found, {said}\nprint({call})\nraise SystemExit({exit_message!r})"
    if finding.kind in ("report", "outside"):
        what = "raised " + type(finding.error).__name__ if finding.error is not None else "wrote outside of an array"
        return f"# this {what} when it was found\n{call}\nprint('no error any more')"
    name = finding.array
    if finding.kind in ("unwritten", "depends"):
        # run twice with different contents of the Outs: results that depend on them differ
        other_poison = 0x3C if finding.poison == 0xFF else 0xFF
        return (
            f"found = {call}[{name!r}]\n"
            f"again = {_call(finding, groups, other_poison)}[{name!r}]  # the Out held something else before\n"
            "np.testing.assert_array_equal(found, again)\nprint('right')"
        )
    assert finding.difference is not None
    return "\n".join([f"found = {call}[{name!r}]", *_comparison(finding.difference, finding.rows), "print('right')"])


def _comparison(difference: Difference, rows: int | None) -> list[str]:
    """Return the lines that compare `found` with the expected values.

    `rows` is the number of rows to compare in any order (None: compare all elements in order).
    """
    expected = f"expected = {array_text(difference.expected if rows is None else difference.expected[:rows])}"
    allowed = np.broadcast_to(difference.allowed, difference.found.shape)
    if rows is not None:  # the order of rows isn't specified
        expected += f"\nfound, expected = (np.array(sorted(v.tolist())) for v in (found[:{rows}], expected))"
        allowed = np.broadcast_to(allowed[:rows].max(axis=0, initial=0.0), allowed[:rows].shape)
    if not difference.dtype.is_float:
        return [expected, "np.testing.assert_array_equal(found, expected)"]
    return [
        expected,
        f"allowed = {array_text(np.ascontiguousarray(allowed))}",
        "difference = np.where(found == expected, 0, np.abs(found - expected))",
        "wrong = ~(difference <= allowed) & ~(np.isnan(found) & np.isnan(expected))",
        "assert not wrong.any(), (np.argwhere(wrong), found[wrong], expected[wrong])",
    ]
