"""Hypothesis strategies for a kernel's arguments, derived from its signature.

`strategies`, for users, returns a strategy of argument dictionaries. `Drawing`, for the other modules of
`vkjit.testing`, draws `Case`s. The number of hypothesis draws per case doesn't depend on the sizes of arrays, which
keeps drawing and shrinking fast: a size is drawn as an index into a table, an array as a pattern, a seed and a few
special values. Smaller draws give simpler cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vkjit import dtypes as types
from vkjit.backends.selection import device as open_device
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, InternalError
from vkjit.frontend import REQUIRED, KernelSpec, ParamSpec, tune_choice
from vkjit.lang.control import Tune
from vkjit.launch.kernel import Kernel
from vkjit.runtime.device import Device

from ..cases.aliasing import alias_pairs, with_aliased
from ..cases.case import ArrayInput, Case, decode, encode
from ..cases.composites import assemble, parameters_of, plain_layouts, refuse_unknown_types
from ..cases.layouts import C_ORDER, Layout
from .choices import Chooser, Drawn
from .dimensions import Dimensions
from .elements import PATTERNS, Domain, domain_of, fill, limits, special_kinds_of, special_values
from .load_hypothesis import load_hypothesis
from .usable_types import usable_types
from .work_estimate import is_light

__all__ = ["MAX_ELEMENTS", "Drawing", "dtype_of_param", "layouts_for", "number_of", "scalar_of", "strategies"]

MAX_ELEMENTS = 1 << 15
"""Maximum number of elements of a drawn array."""
_PATTERNS = (*PATTERNS, "random", "counting", "random", "small")
"""The fill patterns; a repeated one is drawn more often."""
_LOOSE = (1, 2, 3, 0, 5, 8, 17)
"""Sizes of loose dimensions, which have no name (see `dimensions`), the simplest first."""

_CONST_SIZE = 16
"""Size of a dimension for which kernels are compiled to find the types that they support, if a Const is that size."""

_SCALARS = (0, 1, 2, -1, 3, 5, -7, 10)
_FLOAT_SCALARS = (0.0, 1.0, 2.0, -1.0, 0.5, -1.5, 3.25, 0.1, -0.3)
"""Values of scalar arguments without constraints, the simplest first."""


def strategies(
    kernel: Kernel,
    *,
    dims: Mapping[str, Any] | None = None,
    elements: Mapping[str, Any] | None = None,
    where: Callable[..., bool] | None = None,
    dtypes: Mapping[str, Any] | Sequence[Any] | None = None,
    devices: Sequence[Any] | None = None,
    special: bool | Sequence[str] = False,
    aliases: Sequence[tuple[str, str]] = (),
    outs: bool = False,
) -> Any:
    """Return a hypothesis strategy of argument dictionaries for the kernel: `kernel(**arguments)` runs it.

    dims: maps a dimension name to a size, a (low, high) pair (high may be None), a list of choices or a strategy.
        Default: 0, 1, small sizes, primes, powers of two, workgroup sizes, and sizes next to these. An array annotated
        without dimensions gets them by its own name: dims={"x": "M N"}.
    elements: maps an argument name to a (low, high) pair, a list of values, a single value or a hypothesis strategy of
        elements. Numbers may be expressions over dimension names: elements={"indices": (0, "N-1"), "count": "N"}.
        Fields of structs are named separately: elements={"p.mass": (0, 1)}.
    where: a predicate; its parameters have names of arguments. Arguments that it rejects aren't drawn.
    dtypes: maps a type variable name to a list of dtypes, or one list for all. Default: every type that the devices
        support and the kernel compiles for.
    devices: the devices whose types are drawn (default: the default device).
    special: mixes in "nan", "inf", "negative_zero", "subnormal", "extreme" (True: all of them).
    aliases: pairs of array parameters for which a caller may pass the same array, as some of the cases drawn do.
    outs: include Outs whose shape follows from the dimensions.

    Arrays are NumPy arrays, in C order, transposed, sliced, reversed, repeated (In only) or at an offset.
    """
    opened = [open_device(spec) for spec in devices] if devices is not None else [open_device(None)]
    drawing = Drawing(
        kernel, opened, dims=dims, elements=elements, where=where, dtypes=dtypes, special=special, aliases=aliases
    )
    return drawing.cases().map(lambda case: case.numpy_arguments(kernel.expanded_spec, outs=outs))


class Drawing:
    """The inputs of one kernel that the user's constraints allow, and the means to draw from them.

    The parameters are those of `strategies`; `groups` is the user's number of workgroups, or a function that computes
    it.

    - `dimensions` and `domains` hold the constraints on sizes and values.
    - `plain_layouts` maps arrays that are fields of structs to their layouts, which are the only ones they can have.
    - `special` are the kinds of special values to mix in, `aliases` the pairs of arrays that may share memory.
    - `size_constants` names the Const parameters that are sizes of dimensions.
    - `types` maps each type variable to its usable types; `left_out` has the reasons why other types aren't used.
    """

    def __init__(
        self,
        kernel: Kernel,
        devices: Sequence[Device],
        *,
        dims: Mapping[str, Any] | None = None,
        elements: Mapping[str, Any] | None = None,
        where: Callable[..., bool] | None = None,
        dtypes: Mapping[str, Any] | Sequence[Any] | None = None,
        special: bool | Sequence[str] | None = False,
        aliases: Sequence[tuple[str, str]] = (),
        groups: Any = None,
    ) -> None:
        load_hypothesis()
        self.kernel = kernel
        self.spec: KernelSpec = kernel.expanded_spec
        refuse_unknown_types(self.spec)
        self.plain_layouts = plain_layouts(self.spec)
        elements, dims = dict(elements or {}), dict(dims or {})
        self.size_constants = tuple(self.spec.params[i].name for i in self.spec.size_constants)
        for name in self.size_constants:  # their values are sizes of dimensions
            if name in elements and name in dims:
                raise ArgumentError(f"{self.spec.name}: {name} is in dims= and in elements=: give it in one of them")
            if name in elements:
                dims[name] = elements.pop(name)
        self.dimensions = Dimensions(kernel, dims)
        self.domains = _domains(self.spec, elements)
        self.where = where
        self.special = special_kinds_of(special)
        self.aliases = alias_pairs(kernel.spec, aliases)
        self.groups = groups
        self.devices = list(devices)
        self.types, self.left_out = usable_types(kernel, self.dimensions, devices, dtypes, self._constants())

    def _constants(self) -> dict[str, Any]:
        """Return the first value to try for each Const parameter."""
        return {p.name: self.choices_of_const(p)[0] for p in self.spec.params if p.kind == "const"}

    def choices_of_const(self, param: ParamSpec) -> tuple[Any, ...]:
        """Return the values to try for a Const parameter: those given by the user, the choices of `Tune`, or the
        default.

        Raises ArgumentError if there are none. For a Const that is the size of a dimension, which cases draw with the
        other sizes, it is one size.
        """
        if param.name in self.size_constants:
            allowed = self.dimensions.sizes[param.name]
            if allowed.choices is not None:
                return allowed.choices[-1:]
            size = max(allowed.low, _CONST_SIZE if allowed.high is None else min(_CONST_SIZE, allowed.high))
            return ((size,) if param.name in self.dimensions.variadic else size,)
        domain = self.domains[param.name]
        if domain.choices is not None:
            return domain.choices
        if domain.low is not None and isinstance(domain.high, int):
            return tuple(range(int(domain.low), domain.high + 1))
        if isinstance(param.default, Tune):
            return param.default.choices
        if param.default is REQUIRED:
            raise ArgumentError(
                f"{self.spec.name}: the Const parameter {param.name} has no default: give its values, "
                f"as in elements={{{param.name!r}: [16, 32]}}"
            )
        return (tune_choice(param.default),)

    # -- the strategy

    def cases(self) -> Any:
        """Return a strategy of cases that hypothesis can shrink."""
        from hypothesis import strategies as st

        return st.composite(lambda draw: self.case(Drawn(draw)))()

    def case(self, chooser: Chooser) -> Case:
        """Draw one case. If it is too large or `where` rejects it, reject the current hypothesis example."""
        drawn = self._choose(chooser)
        if drawn is None or not self.allowed(drawn):
            load_hypothesis().reject()
            raise InternalError("hypothesis goes on after a rejected draw")
        return drawn

    def allowed(self, case: Case) -> bool:
        """True if the user's predicate `where` accepts the case, or there is none."""
        if self.where is None:
            return True
        from ..cases.reference import call_by_name, values_by_name

        with np.errstate(all="ignore"):
            values = assemble(self.spec, values_by_name(case, precise=False))
            return bool(call_by_name(self.where, values, "where"))

    def is_light(self, case: Case) -> bool:
        """True if the interpreter can run the case in a short time (see `work_estimate`)."""
        return is_light(self.kernel, case, self.groups)

    def _choose(self, chooser: Chooser) -> Case | None:
        """Draw a case: types, sizes, layouts and values. None if the sizes aren't possible or an array is too large."""
        bound = {name: chooser.pick(choices) for name, choices in self.types.items()}
        env = self._choose_sizes(chooser)
        loose_sizes = {
            name: tuple(chooser.pick(_LOOSE) for _ in range(count))
            for name, count in self.dimensions.loose_counts().items()
        }
        shapes = self.dimensions.shapes(env, loose_sizes)
        if shapes is None or any(math.prod(shape) > MAX_ELEMENTS for shape in shapes.values()):
            return None
        arguments: dict[str, Any] = {}
        reordered = chooser.pick(self._sets_of_reordered_arrays())
        for param in self.spec.params:
            if param.kind == "array":
                shape = shapes[param.name]
                layouts = (
                    layouts_for(len(shape), param.mode or "inout") if param.name in reordered else [self.layout(param)]
                )
                arguments[param.name] = self._choose_array(chooser, param, shape, chooser.pick(layouts), bound, env)
            elif param.kind == "scalar":
                arguments[param.name] = self._choose_scalar(chooser, param, bound, env)
            else:
                is_size = param.name in self.size_constants
                arguments[param.name] = env[param.name] if is_size else chooser.pick(self.choices_of_const(param))
        case = Case(env, bound, arguments)
        # at most one pair of aliases; None twice, so that many cases have none
        pair = chooser.pick((None, None, *self.aliases)) if self.aliases else None
        return case if pair is None else with_aliased(case, pair) or case

    def _sets_of_reordered_arrays(self) -> list[tuple[str, ...]]:
        """Return sets of arrays, of which a case chooses one: its arrays get a layout other than C order.

        About half of the sets are empty and most others have one array, since the kernel is compiled for each
        combination of layouts.
        """
        names = [p.name for p in self.spec.params if p.kind == "array" and p.name not in self.plain_layouts]
        single = [(n,) for n in names]
        return [(), *[() for _ in single], *single, *([tuple(names)] if len(names) > 1 else [])]

    def layout(self, param: ParamSpec) -> Layout:
        """Return the default layout of an array: C order, or that of a field in an array of structs."""
        return self.plain_layouts.get(param.name, C_ORDER)

    def _choose_sizes(self, chooser: Chooser) -> dict[str, Any]:
        """Draw the sizes of all dimension names."""
        dimensions = self.dimensions
        plain = [n for n in dimensions.names if n not in dimensions.variadic]
        long = chooser.pick(plain) if len(plain) > 1 else None  # the long dimension (see `Dimensions.table`)
        env: dict[str, Any] = {}
        for name in dimensions.names:
            if name in dimensions.strategies:
                env[name] = chooser.draw(dimensions.strategies[name])
            elif name in dimensions.variadic and dimensions.sizes[name].choices is None:
                env[name] = tuple(chooser.pick((1, 2, 3, 0, 5)) for _ in range(chooser.pick((0, 1, 2))))
            else:
                env[name] = chooser.pick(dimensions.table(name, name == long))
        if self.where is not None and len(plain) > 1 and chooser.pick((False, False, True)):  # one case in three
            self._make_equal(env, plain)
        return env

    def _make_equal(self, env: dict[str, Any], names: Sequence[str]) -> None:
        """Set the sizes of all names to that of the first name, where allowed, since `where` may demand equal sizes."""
        size = env[names[0]]
        for name in names[1:]:
            bounds = self.dimensions.sizes[name]
            fits = bounds.low <= size and (bounds.high is None or size <= bounds.high)
            allowed = size in bounds.choices if bounds.choices is not None else fits
            if name not in self.dimensions.strategies and allowed:
                env[name] = size

    def _choose_array(
        self, chooser: Chooser, param: ParamSpec, shape: tuple[int, ...], layout: Layout, bound: Mapping[str, DType],
        env: Mapping[str, Any],
    ) -> ArrayInput:  # fmt: skip
        """Draw an array of this shape and layout. `bound` are the chosen types by type variable, `env` the sizes."""
        dtype = dtype_of_param(param, bound)
        if param.mode == "out":
            return ArrayInput(dtype, shape, None, layout)
        # axes of stride 0 have one stored element, unless they are empty
        distinct = tuple(1 if axis in layout.repeated and n > 1 else n for axis, n in enumerate(shape))
        values = self._choose_values(chooser, self.domains[param.name], distinct, dtype, env)
        values = decode(encode(values, dtype), dtype)  # round to the type
        return ArrayInput(dtype, shape, np.array(np.broadcast_to(values, shape)), layout)

    def _choose_values(
        self, chooser: Chooser, domain: Domain, shape: tuple[int, ...], dtype: DType, env: Mapping[str, Any]
    ) -> npt.NDArray[Any]:
        """Draw the elements of an array. Rejects the hypothesis example if the range of values is empty."""
        if domain.strategy is not None:
            from hypothesis.extra import numpy as hypothesis_numpy

            drawn: npt.NDArray[Any] = chooser.draw(
                hypothesis_numpy.arrays(dtype.numpy, shape, elements=domain.strategy)
            )
            return drawn
        count = math.prod(shape)
        if domain.choices is not None:
            seed = chooser.seed()
            picked = np.array([number_of(c, env) for c in domain.choices])
            # seed 0 is the simplest draw: all elements are the first choice
            return picked[np.random.default_rng(seed).integers(0, len(picked) if seed else 1, count)].reshape(shape)
        low, high = domain.bounds(env)
        if count and _empty(low, high):
            load_hypothesis().reject()
        pattern = chooser.pick(_PATTERNS)
        # the first three patterns need no seed
        values = fill(pattern, chooser.seed() if pattern in PATTERNS[3:] else 0, shape, dtype, low, high)
        specials = [v for v in special_values(dtype, self._kinds_to_mix_in(domain, dtype)) if _inside(v, low, high)]
        if specials and count:
            for _ in range(chooser.pick((0, 0, 1, 2, 3))):
                values.reshape(-1)[chooser.integer(0, count - 1)] = chooser.pick(specials)
        return values

    def _kinds_to_mix_in(self, domain: Domain, dtype: DType) -> tuple[str, ...]:
        """Return the kinds of special values to mix in: the user's, and for unconstrained integers always "extreme"."""
        return (*self.special, "extreme") if dtype.is_integer and domain.free else self.special

    def _choose_scalar(
        self, chooser: Chooser, param: ParamSpec, bound: Mapping[str, DType], env: Mapping[str, Any]
    ) -> Any:
        """Draw a scalar argument. Rejects the hypothesis example if the range of values is empty."""
        dtype, domain = dtype_of_param(param, bound), self.domains[param.name]
        if domain.strategy is not None:
            return scalar_of(chooser.draw(domain.strategy), dtype)
        if domain.choices is not None:
            return scalar_of(chooser.pick([number_of(c, env) for c in domain.choices]), dtype)
        low, high = domain.bounds(env)
        if dtype is types.boolean:
            return chooser.pick((False, True))
        if low is None and high is None:
            candidates: list[Any] = list(_FLOAT_SCALARS)
            if not dtype.is_float:
                candidates = [v for v in _SCALARS if v >= 0 or dtype.is_signed]
                # the argument may be a length
                candidates += [n for n in env.values() if isinstance(n, int) and n <= limits(dtype)[1]]
            return scalar_of(
                chooser.pick(candidates + special_values(dtype, self._kinds_to_mix_in(domain, dtype))), dtype
            )
        if _empty(low, high):
            load_hypothesis().reject()
        if dtype.is_integer:
            return chooser.integer(low, high)
        value = scalar_of(chooser.real(low, high), dtype)
        return value if _inside(value, low, high) else scalar_of(low if low is not None else high, dtype)


def dtype_of_param(param: ParamSpec, bound: Mapping[str, DType]) -> DType:
    """Return the element type of a parameter. `bound` are the chosen types by type variable."""
    if isinstance(param.dtype, TypeVar):
        return bound[param.dtype.__name__]
    return param.dtype if param.dtype is not None else types.f32


def scalar_of(value: Any, dtype: DType) -> Any:
    """Round a number to the type and return it as a Python number."""
    if dtype is types.boolean:
        return bool(value)
    if dtype.is_integer:
        return int(value)
    with np.errstate(all="ignore"):
        return float(decode(encode(np.asarray(value, dtype.numpy).reshape(1), dtype), dtype)[0])


def layouts_for(rank: int, mode: str) -> list[Layout]:
    """Return the layouts other than C order to try for an array of this rank; for rank 0 just C order.

    `mode` is "in", "out" or "inout"; only an In may have axes of stride 0.
    """
    if rank == 0:
        return [C_ORDER]
    last = rank - 1
    layouts = [Layout(offset=3), Layout(step=2), Layout(backwards=(0,))]
    if rank > 1:
        layouts += [Layout(order=tuple(reversed(range(rank)))), Layout(backwards=(last,), step=2)]
        layouts += [Layout(order=(*range(1, rank), 0))]
    if mode == "in":
        layouts += [Layout(repeated=(0,))] if rank == 1 else [Layout(repeated=(0,)), Layout(repeated=(last,))]
    return layouts


def _domains(spec: KernelSpec, elements: Mapping[str, Any]) -> dict[str, Domain]:
    """Return the constraint on the values of each parameter, from the user's `elements=`.

    Raises ArgumentError for names that aren't parameters, and for parameters without an annotation.
    """
    owners = {part: p.name for p in parameters_of(spec) for part in p.parts}
    names = [p.name for p in spec.params]
    unknown = [n for n in elements if n not in names and n not in owners.values()]
    if unknown:
        raise ArgumentError(f"elements: {spec.name} has no parameter {unknown[0]!r}; it has {', '.join(names)}")
    for param in spec.params:
        if param.kind == "any":
            raise ArgumentError(
                f"{spec.name}: parameter {param.name} has no annotation, so nothing says what to draw for it: "
                'annotate it, as in vk.In[vk.f32, "N"] or vk.f32'
            )
    return {n: domain_of(n, elements.get(n, elements.get(owners[n]))) for n in names}


def number_of(value: Any, env: Mapping[str, Any]) -> Any:
    """Return a number unchanged, or evaluate an expression over dimension names for the sizes `env`."""
    return Domain(low=value).bounds(env)[0]


def _empty(low: Any, high: Any) -> bool:
    """True if the range [low, high] is empty; None stands for no bound."""
    return low is not None and high is not None and bool(low > high)


def _inside(value: Any, low: Any, high: Any) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
