"""Compilation driver of the CPU backend: IR in primitive form to object code.

The object file exports one function::

    void kernel(char *block, int64_t begin, int64_t end, int64_t x, int64_t y, int64_t z, char *watch)

It runs the workgroups `begin` to `end` - 1, numbered along x first, of a grid of x * y * z workgroups. `block` is the
argument block, `watch` the cancellation token of the calling thread (see `safepoints`): the function returns early if
the launch is canceled. Floats are computed in the CPU's default mode (round to nearest, with subnormals, without traps),
regardless of the caller's mode.
"""

from __future__ import annotations

from vkjit.backends.codegen.argument_layout import argument_set, block_layout
from vkjit.backends.codegen.reports import describe
from vkjit.backends.codegen.usage import Usage, usage_of
from vkjit.errors import CompileError, FeatureError
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Scalar
from vkjit.passes.lowering.lower_access import LowerAccess
from vkjit.passes.lowering.lower_arithmetic import LowerArithmetic
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.lowering.lower_math import LowerMath
from vkjit.passes.pipeline import LLVM_FLOATS, native_functions
from vkjit.runtime.artifact import ArgField, KernelArtifact
from vkjit.runtime.device import DeviceCaps

from ..runtime import llvm
from . import atomics, elementwise, entry_point, ids, loops, memory, printing, report, subgroups
from .barrier_regions import plan_of
from .context import Generator, Geometry, Handler
from .cross_loop_reuse import hold
from .llvm_text import Text, memory_type
from .loop_interchange import interchange
from .nontemporal_stores import NONTEMPORAL, begin_nontemporal, end_nontemporal, streamed_stores
from .safepoints import HALTED, fill
from .stride_analysis import Shapes
from .workgroup import write_body

__all__ = ["emit", "geometry_of", "kernel_text", "text_of"]

ENTRY = "kernel"
MAX_STACK = 4 << 20
"""Limit in bytes of a workgroup's shared arrays, local arrays and spilled values, which are on a thread's stack."""

UNOPTIMIZED_LINES, UNOPTIMIZED_DEPTH = 25_000, 100
"""Size of the LLVM IR and nesting of branches above which it is compiled without optimizations, whose time is quadratic
in either.
"""
MAX_LINES = 150_000
"""The maximum size of the LLVM IR. Without optimizations, 10,000 lines take a second."""

_HANDLERS: dict[OpName, Handler] = {
    **elementwise.HANDLERS,
    **ids.HANDLERS,
    **memory.HANDLERS,
    **loops.HANDLERS,
    **atomics.HANDLERS,
    **subgroups.HANDLERS,
    **report.HANDLERS,
    **printing.HANDLERS,
}


def emit(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """Compile a module to object code.

    Raises FeatureError if a workgroup needs too much stack, InternalError for operations that should have been lowered.
    """
    text, module, usage, fields, size, stack_bytes = _written(module, caps)
    kernel = module.kernel
    geometry = geometry_of(kernel, caps.subgroup_size)
    lines = text.count("\n")
    if lines > MAX_LINES:
        raise CompileError(
            f"the kernel is too large: it has {lines} instructions of LLVM, {MAX_LINES} are allowed",
            kernel.loc,
            hint="use range() instead of vk.unroll, or split the kernel",
        )
    plain = lines > UNOPTIMIZED_LINES or _depth(kernel.body) > UNOPTIMIZED_DEPTH
    code = llvm.compile_text(text, 0) if plain else llvm.compile_text(text)
    return KernelArtifact(
        name=kernel.name,
        code=code,
        entry=ENTRY,
        local_size=geometry.local,
        fields=fields,
        block_size=size,
        indirect=False,
        reads=argument_set(kernel, usage.reads),
        writes=argument_set(kernel, usage.writes),
        subgroup_size=geometry.width if kernel.attrs.get("subgroups") else None,
        sites=tuple(module.sites),
        info=describe([op for op in usage.reports if op.name == "report"]) | {"stack_bytes": stack_bytes},
    )


def text_of(module: Module, caps: DeviceCaps) -> str:
    """Return the LLVM IR that `emit` compiles."""
    return _written(module, caps)[0]


def _written(module: Module, caps: DeviceCaps) -> tuple[str, Module, Usage, tuple[ArgField, ...], int, int]:
    """Return (LLVM IR, lowered module, its usage, fields of the argument block, its size and that of the stack's arrays).

    Both sizes are in bytes.
    """
    module = _without_functions(LowerAccess().run(LowerExits().run(module)), caps)
    kernel = module.kernel
    host = llvm.host()
    module = interchange(hold(module), geometry_of(kernel, caps.subgroup_size).count)
    usage = usage_of(module)
    usage.reports += usage.prints  # they share the report buffer
    usage.prints = []
    fields, size, _ = block_layout(module, caps, usage=usage)
    g = _generated(module, geometry_of(kernel, caps.subgroup_size), fields, usage, host.features, host.family)
    return _module_text(g, host.family), module, usage, fields, size, g.text.array_bytes


def _without_functions(module: Module, caps: DeviceCaps) -> Module:
    """Expand the functions that the passes left to GLSL.std.450 in a kernel with `fast_math`: the CPU has no such library."""
    kernel = module.kernel
    if not kernel.attrs.get("fast_math"):
        return module
    del kernel.attrs["fast_math"]
    module = LowerArithmetic(LLVM_FLOATS).run(LowerMath(native_functions(caps), branches=True).run(module))
    module.kernel.attrs["fast_math"] = True
    return module


def geometry_of(kernel: Function, lanes: int) -> Geometry:
    """Choose the vector width for a workgroup on a device with vectors of `lanes` lanes.

    Kernels with subgroup operations get exactly `lanes`. Others get `lanes / 2` if that is the size along x, and at most
    the smallest power of two that holds the workgroup.
    """
    x, y, z = (int(size) for size in kernel.attrs["local_size"])
    local = (x, y, z)
    if kernel.attrs.get("subgroups"):
        return Geometry(local, lanes)
    total = x * y * z
    width = lanes
    if x % lanes and x * 2 >= lanes and x & (x - 1) == 0:
        width = x
    while width > 1 and width // 2 >= total:
        width //= 2
    return Geometry(local, width)


def kernel_text(
    module: Module,
    geometry: Geometry,
    fields: tuple[ArgField, ...],
    usage: Usage,
    features: frozenset[str],
    family: str = "",
) -> str:
    """Return the LLVM IR of a module for a CPU of this family ("x86_64", "aarch64") with these features."""
    return _module_text(_generated(module, geometry, fields, usage, features, family), family)


def _generated(
    module: Module,
    geometry: Geometry,
    fields: tuple[ArgField, ...],
    usage: Usage,
    features: frozenset[str],
    family: str,
) -> Generator:
    """Return a generator that has written the kernel's body."""
    kernel = module.kernel
    shapes = Shapes.of(kernel, geometry.steps, geometry.width)
    g = Generator(module, geometry, shapes, fields, _HANDLERS, features, family, streamed_stores(kernel))
    _load_arguments(g, kernel, usage)
    plan = plan_of(kernel, shapes, geometry.block)
    _over_groups(g, lambda: write_body(g, plan))
    _check_stack(g)
    return g


def _load_arguments(g: Generator, kernel: Function, usage: Usage) -> None:
    """Load the fields of the argument block in the entry block."""
    text = g.text
    for (role, arg, axis), item in g.fields.items():
        place = text.op(f"getelementptr i8, ptr %block, i64 {item.offset}")
        part = text.load(memory_type(item.dtype), place, ", align 1")
        if role in ("extent", "stride") and item.dtype.bits == 32:
            part = text.op(f"sext i32 {part} to i64")
        g.arguments[role, arg, axis] = part
    for position, param in enumerate(kernel.params):
        number = g.numbers[param]
        if isinstance(param.type, Array):
            if position in usage.addresses:
                address = g.field_value("address", number)
                g.bases[param] = text.op(f"inttoptr i64 {address} to ptr")
                if param.type.restrict:
                    g.alias_scopes[param] = len(g.alias_scopes)
        elif isinstance(param.type, Scalar) and position in usage.scalars:
            part = g.field_value("scalar", number)
            if param.type.dtype.kind == "bool":
                part = text.op(f"icmp ne i8 {part}, 0")
            g.parts[param] = [part]


def _over_groups(g: Generator, write: object) -> None:
    """Emit the loop over the workgroups `begin` to `end` - 1; `write` emits its body."""
    text = g.text
    fill(g)
    begin_nontemporal(g)
    names = ("x", "y", "z")
    place = {name: text.variable("i64", f"group_{name}") for name in names}
    number = text.variable("i64", "group")
    text.store("i64", "%begin", number)
    rest = text.op("udiv i64 %begin, %x")
    text.store("i64", text.op("urem i64 %begin, %x"), place["x"])
    text.store("i64", text.op(f"urem i64 {rest}, %y"), place["y"])
    text.store("i64", text.op(f"udiv i64 {rest}, %y"), place["z"])
    head, body, leave = "groups", "group_body", "group_leave"
    text.jump(head)
    text.label(head)
    now = text.load("i64", number)
    text.branch(text.op(f"icmp slt i64 {now}, %end"), body, leave)
    text.label(body)
    for axis, name in enumerate(names):
        own, base = text.load("i64", place[name]), g.arguments.get(("base", -1, axis))
        g.ids["group", axis] = own if base is None else text.op(f"add i64 {own}, {base}")
        g.ids["groups", axis] = g.arguments.get(("groups", -1, axis), f"%{name}")
    with g.scope():
        write()  # type: ignore[operator]
    if text.open:
        _next_group(text, place, number)
        text.jump(head)
    text.label(leave)
    end_nontemporal(g)
    text.do("ret void")
    if "poll" in g.helpers:
        text.label(HALTED)
        end_nontemporal(g)
        text.do("ret void")


def _next_group(text: Text, place: dict[str, str], number: str) -> None:
    text.store("i64", text.op(f"add i64 {text.load('i64', number)}, 1"), number)
    x = text.op(f"add i64 {text.load('i64', place['x'])}, 1")
    over = text.op(f"icmp eq i64 {x}, %x")
    text.store("i64", text.op(f"select i1 {over}, i64 0, i64 {x}"), place["x"])
    y = text.op(f"add i64 {text.load('i64', place['y'])}, {text.op(f'zext i1 {over} to i64')}")
    over = text.op(f"icmp eq i64 {y}, %y")
    text.store("i64", text.op(f"select i1 {over}, i64 0, i64 {y}"), place["y"])
    z = text.op(f"add i64 {text.load('i64', place['z'])}, {text.op(f'zext i1 {over} to i64')}")
    text.store("i64", z, place["z"])


def _module_text(g: Generator, family: str) -> str:
    lines = [
        *entry_point.entry_point(ENTRY, family),
        f"define internal void @{entry_point.BODY}({entry_point.PARAMETERS}) noinline nounwind {entry_point.probed(family)} {{",
        "entry:",
        *entry_point.rooted(family),
        *g.text.variables,
        *g.text.lines,
        "}",
        *entry_point.missing_conversions(g.text, g.features, family),
        *g.helpers.values(),
        *g.text.declared.values(),
        '!0 = !{!"branch_weights", i32 2000, i32 1}',
        '!1 = !{!"branch_weights", i32 1, i32 2000}',
        NONTEMPORAL,
        *_alias_metadata(g.alias_scopes),
    ]
    return "\n".join(lines) + "\n"


def _alias_metadata(scopes: dict[Value, int]) -> list[str]:
    """Return one alias scope per `restrict` array, and for each the lists that `!alias.scope` and `!noalias` name."""
    count = len(scopes)
    lines = ['!99 = distinct !{!99, !"arrays"}']
    for number in range(count):
        own = 1000 + number
        others = ", ".join(f"!{1000 + other}" for other in range(count) if other != number)
        lines.append(f"!{own} = distinct !{{!{own}, !99}}")
        lines.append(f"!{100 + 2 * number} = !{{!{own}}}")
        lines.append(f"!{101 + 2 * number} = !{{{others}}}")
    return lines


def _depth(body: Region) -> int:
    """Return how deeply branches and loops are nested in a region."""
    depth, level = -1, [body]
    while level:
        depth, level = depth + 1, [inner for region in level for op in region.ops for inner in op.regions]
    return depth


def _check_stack(g: Generator) -> None:
    """Raise FeatureError if the arrays of a workgroup exceed `MAX_STACK`."""
    needed = g.text.array_bytes
    if needed > MAX_STACK:
        raise FeatureError(
            f"kernel {g.kernel.name}: a workgroup of {g.geometry.local} needs {needed} bytes for shared arrays, local "
            f"arrays and values that live across barriers; the CPU device has {MAX_STACK}: use a smaller workgroup"
        )
