"""The `@vk.kernel` and `@vk.func` decorators.

`@vk.kernel` turns a Python function into a `Kernel`, which binds arguments, compiles once per signature, launches, and
returns the Outs that it allocated: as NumPy arrays for NumPy arguments, as tensors or device arrays for those.

Internal frames that may raise an error of the caller set `__tracebackhide__`, so that pytest and IPython omit them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import frontend
from ..backends.selection import default_device
from ..compiler.fingerprint import Captures
from ..dtypes import DType
from ..errors import ArgumentError, CompileError
from ..frontend import (
    ArrayArg,
    ConstArg,
    DeviceFunction,
    KernelSpec,
    ScalarArg,
    Signature,
    constant_key,
)
from ..runtime import dispatch_cache, host_spans, sanitizer_reports
from ..runtime.device import Device, DeviceArray
from ..runtime.handles import new_lock
from ..settings import boolean_setting
from . import bind, extensions, host_arrays, plan, struct_arguments
from .bind import MISSING
from .cache import (
    MISS,
    CachedLaunch,
    CallForm,
    ScalarCoercion,
    constant_captures,
    is_cacheable,
    shape_rule,
    values_in_key,
)
from .cost_model import describe_argument
from .grid import Grid, LaunchGrid, checked_grid, is_split
from .methods import Bindable
from .plan import LaunchPlan
from .tunable import Tunable, has_open_choices

if TYPE_CHECKING:
    from ..api.inspection import Inspection

    class _Decorator(Any):  # type: ignore[misc]
        """What type checkers take a kernel for, and `vk.kernel(...)`: strict ones refuse decorators without a type."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["Kernel", "func", "kernel"]


def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    over: str | None = None,
    groups: int | tuple[int, ...] | Callable[..., Any] | None = None,
    local: int | tuple[int, ...] | Callable[..., Any] | None = None,
    strict: bool = False,
    fast_math: bool = False,
    debug: bool | None = None,
    sanitize: bool | str | Iterable[str] | None = None,
) -> _Decorator:
    """Compile a Python function as a GPU kernel (a decorator, with or without arguments).

    over: the name of an array parameter. The launch has one invocation per element; out-of-range invocations don't run
    the body.
    groups: the number of workgroups: an int, a tuple, or a function whose parameters name the kernel arguments that it
    needs.
    local: the workgroup size, in the same forms; the library chooses it by default.
    strict: don't fuse or reorder floating-point operations, so that + - * / sqrt are bit-identical on every device.
    fast_math: use the device's native math functions; `min` and `max` of +0 and -0 may return either.
    debug: report out-of-bounds accesses, division by zero and failed asserts; initialize shared memory and allocated
    Outs to NaN. None follows VKJIT_DEBUG: 1 is True, 0 is False; if it is unset, too, CPU devices and the interpreter
    check bounds.
    sanitize: check each launch for races, uninitialized reads and other errors, wait for it, and raise SanitizerError.
    True or names from `sanitizer_reports.CHECKS`; None follows VKJIT_SANITIZE. For tests: launches take several times
    as long.

    Raises CompileError at decoration for errors in the signature, and at the first launch of a signature for all
    others.
    """
    options: dict[str, Any] = {
        "over": over, "groups": groups, "local": local, "strict": strict, "fast_math": fast_math, "debug": debug,
        "sanitize": sanitize,
    }  # fmt: skip
    decorate: Any = functools.partial(Kernel, **options)
    return decorate if fn is None else decorate(fn)  # type: ignore[no-any-return]


def func(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a device function, callable from kernels and other device functions.

    Device functions may be generic and return several results. They can't be recursive.
    """
    return DeviceFunction(fn)


class _Code(NamedTuple):
    """Compiled code of a kernel, with the captures of its constants."""

    signature: Signature
    plan: LaunchPlan
    captures: tuple[Captures, ...]

    def is_outdated(self) -> bool:
        """True if the captures have changed since the code was compiled."""
        return any(c.changed() for c in self.captures)


class Kernel(Tunable, Bindable):
    """A kernel, compiled on demand. Call it to launch; `kernel[groups](...)` sets the number of workgroups."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        over: str | None,
        groups: Any,
        local: Any,
        strict: bool,
        fast_math: bool,
        debug: bool | None,
        sanitize: bool | str | Iterable[str] | None = None,
        found: list[sanitizer_reports.SanitizerReport] | None = None,
        spec: KernelSpec | None = None,
    ) -> None:
        """If `found` is given, sanitizer reports are appended to it instead of raised.

        `spec` is the parsed signature, for variants of a kernel: names in its annotations may no longer resolve.
        """
        fn = fn.__func__ if isinstance(fn, staticmethod | classmethod) else fn
        if over is not None and groups is not None:
            raise CompileError(f"kernel {fn.__name__} has over= and groups=", hint="use one of them")
        if strict and fast_math:
            raise CompileError(f"kernel {fn.__name__} has strict=True and fast_math=True", hint="use one of them")
        self.spec: KernelSpec = frontend.describe(fn, over=over) if spec is None else spec
        self._groups = groups
        self._local = local
        self._strict = strict
        self._fast_math = fast_math
        self._debug = debug
        self._sanitize = None if sanitize is None else sanitizer_reports.parse_checks(sanitize)
        self._found = found
        self._plans: dict[tuple[Any, ...], _Code] = {}
        self._captures = Captures(fn)
        self._forms: dict[Any, CallForm] = {}
        self._expanded = frontend.expand_composites(self.spec)
        self._elements = [c.parameter.element for c in self._expanded.composites]
        self._parameters = tuple(p.name for p in self._expanded.params)
        self._cost: Callable[[dict[str, Any]], Any] | None = None
        self.grid = LaunchGrid(self.spec, self._expanded, groups, local)
        self._in_key = values_in_key(self.spec, groups, local)
        self._lock = new_lock()
        self._tunable, self.tuned = has_open_choices(self.spec, local), {}
        functools.update_wrapper(self, fn)
        dispatch_cache.follow(self)

    def variant(self, fn: FunctionType | None = None, **options: Any) -> Kernel:
        """Return a kernel of the same function, or of `fn` with the same parameters, with other options of `Kernel`.

        Omitted options keep their values, except for `sanitize` and `found`, which aren't inherited.
        """
        same = {
            "groups": self._groups, "local": self._local, "strict": self._strict, "fast_math": self._fast_math,
            "debug": self._debug,
        }  # fmt: skip
        spec = self.spec if fn is None else replace(self.spec, fn=fn)
        return Kernel(spec.fn, over=spec.over, spec=spec, **(same | options))

    @property
    def expanded_spec(self) -> KernelSpec:
        """The specification with structs and vectors split into components, which is what gets compiled."""
        return self._expanded

    @property
    def name(self) -> str:
        return self.spec.name

    def __repr__(self) -> str:
        return f"<vk.kernel {self.spec.name}({bind.signature_text(self.spec)[1:-1]})>"

    def declared_local(self) -> tuple[int, ...] | None:
        """Return the declared workgroup size, if it is a constant."""
        return self.grid.declared_local()

    def __getitem__(self, groups: int | tuple[int, ...]) -> Callable[..., Any]:
        """Return a callable that launches the kernel with this number of workgroups."""
        if self.spec.over is not None:
            raise ArgumentError(
                f"{self.name} runs over {self.spec.over!r}: its grid follows from that array; call it without []"
            )
        return functools.partial(self._launch, checked_grid(groups, "the number of workgroups", self.name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch, and return the allocated Outs: the value if there is one, a tuple in parameter order, or None."""
        __tracebackhide__ = True
        form = self._forms.get((len(args), *kwargs) if kwargs else len(args))
        if form is not None:
            call = form.call
            if call is not None and (call(*args, *kwargs.values()) if kwargs else call(*args)):
                return None
            if self._cost is None or not host_spans.listeners:
                result = form.launch((*args, *kwargs.values()) if kwargs else args)
                if result is not MISS:
                    return result
        return self._launch_anew(None, args, kwargs)

    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """Return what a launch with these arguments would run; see `vk.inspect`."""
        result: Inspection = extensions.get("inspect")(self, *args, **kwargs)
        return result

    # -- one launch, top to bottom

    def _launch(self, groups: Grid | None, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        form = self._forms.get(_form_key(groups, args, kwargs))
        if form is not None:
            given = (*args, *kwargs.values())
            if form.call is not None and form.call(*given):
                return None
            if self._cost is None or not host_spans.listeners:
                result = form.launch(given)
                if result is not MISS:
                    return result
        return self._launch_anew(groups, args, kwargs)

    def _launch_anew(self, groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch through the slow path."""
        __tracebackhide__ = True
        if self._captures.changed():
            self._forget()
        result = self._launch_fully(groups, args, kwargs)
        if self._cost is not None and host_spans.listeners:
            self._state_cost(self._cost, args, kwargs, result)
        return result

    def _forget(self, device: Device | None = None) -> None:
        """Discard plans and cached launches, after a captured value was rebound or the device's caps have changed.

        With `device`, plans of other devices are kept.
        """
        with self._lock:
            for key in [k for k, code in self._plans.items() if device in (None, code.plan.device)]:
                del self._plans[key]
            self._forms.clear()
            self._captures = Captures(self.spec.fn)
            with contextlib.suppress(CompileError):  # such as edited source, which the next launch reports
                self._captures.read_now()

    def _launch_fully(self, groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        if "torch" in sys.modules:
            from ..interop import torch  # imported only if PyTorch is loaded

            if torch.has_torch_arguments(args, kwargs):
                return torch.launch(functools.partial(self._launch, groups), args, kwargs)
        if self._tunable and (found := self.tuned_settings(args, kwargs)) is not None:
            return found.kernel._launch(groups, *args, **kwargs, **found.constants)
        given = values = bind.bind(self.spec, args, kwargs)
        structs: dict[int, Any] = {}
        if self._expanded is not self.spec:
            values, structs = struct_arguments.expand_values(self._expanded, self.spec, given)
        spec = bind.resolve(self._expanded, values)
        tensors = {i: values[i] for i in spec.arrays if hasattr(values[i], "__vkjit_launched__")}
        device, wrap, hosts, array_dtypes, changed = self._arrays(spec, values)
        bound = bind.bind_types(spec, array_dtypes, values)
        known = bind.bind_dims(spec, {i: values[i].shape for i in array_dtypes}, values)
        scalars = bind.coerce_scalars(spec, values, bound)
        staged = host_arrays.stage(device, spec, hosts, array_dtypes, values) if hosts else None
        made = bind.allocate_outs(spec, values, known, bound, device)
        named = values if given is values else struct_arguments.user_values(spec, self.spec, values, given, structs)
        shape = self.grid.over_shape(values)
        local = self.grid.local_size(device, named, shape)
        grid = self.grid.groups(groups, device, named, local, shape)
        code = self._code(spec, device, values, bound, scalars, local, grid)
        signature, artifact = code.signature, code.plan.artifact
        for i, tensor in tensors.items():
            tensor.__vkjit_launched__(self.name, spec.params[i].name)
        bind.check_allocated(spec, made, artifact.info.get("unwritten_reads", {}))
        if not plan.of_library(self.__module__):  # the library checks this itself, and may fill overlapping elements
            host_arrays.check_places(self.spec.name, spec, artifact.writes, hosts, values)
        if groups is not None and (groups[1] > 1 or groups[2] > 1):
            self.grid.check_axes(groups, artifact.info["grid_axes"])
        ready = self._guarded(code, grid, values)
        for i in made if signature.debug else ():
            bind.poison(values[i])
        try:
            if signature.sanitize:
                extensions.get("sanitized launch")(ready, grid, values, self._found)
            else:
                ready.launch(grid, values)
        finally:  # a kernel that reports an error has written, too; reports are raised here and by `copy_back`
            for tensor in changed:
                tensor.__vkjit_written__()
        if staged is not None:
            host_arrays.copy_back(device, staged)
        elif not signature.sanitize:
            self._remember(groups, args, kwargs, code, ready, grid, values, made, bound, scalars, wrap)
        results = structs | {i: wrap(values[i]) for i in made}
        if staged is not None:
            host_arrays.release(device, staged, waits=not results)
        return struct_arguments.results_of_launch(spec, results)

    def _remember(
        self, groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any], code: _Code, ready: LaunchPlan,
        grid: Grid, values: list[Any], made: list[int], bound: dict[str, DType], types: dict[int, DType],
        wrap: Callable[[DeviceArray], Any],
    ) -> None:  # fmt: skip
        """Cache a launch for calls with the same key, if it can be cached."""
        params, given = bind.parameter_indices(self.spec, args, tuple(kwargs)), (*args, *kwargs.values())
        if params is None or not is_cacheable(self.spec, given, params):
            return
        form_key = _form_key(groups, args, kwargs)
        form = self._forms.get(form_key)
        if form is None:
            form = CallForm(self.spec, self._captures, params, self._in_key)
        elif form.params != tuple(params):  # a call that leaves out other parameters
            return
        arrays, scalars = form.arrays, form.scalars
        coercions = {i: ScalarCoercion(types[i], self.spec.params[i].name) for i in scalars}
        signature, device = code.signature, code.plan.device
        if code.plan.trip_bound is not None:  # integers determine whether loops may exceed the driver's cap
            form.add_to_key([i for i in scalars if coercions[i].dtype.is_integer])

        shapes = None
        by_call = self.grid.local_is_computed or not all(i in params for i in self.spec.size_constants)
        by_call |= self._tunable and has_open_choices(self.spec, self._local, params)  # its settings differ by shape
        if not (made or code.plan.trip_bound or signature.cut or by_call):
            if groups is not None or not self.grid.groups_are_computed:
                shapes = shape_rule(self.spec, arrays, signature.local_size, values)

        def cached(ready: LaunchPlan, grid: Grid, values: list[Any]) -> CachedLaunch | None:
            launch = ready.prepare(grid, values, [*arrays, *made], scalars, shapes is not None)
            if launch is None:
                return None
            outs = [values[i] for i in made]
            return CachedLaunch(
                device, launch, grid, shapes, [*arrays, *made], outs, coercions.values(), form.pick_scalars, wrap,
                code.captures, signature.debug,
            )  # fmt: skip

        template: list[Any] = [MISSING if i in made else None if i in params else v for i, v in enumerate(values)]

        def resolve(given: dict[int, Any], is_new: bool) -> CachedLaunch | tuple[Any] | None:
            """Implementation of `cache.Resolve`: make the launch for arrays of other shapes, or run it."""
            values = template.copy()
            for i, value in given.items():
                values[i] = value.__vkjit_array__ if i in arrays else value
            for i, coercion in coercions.items():
                values[i] = bind.coerce_scalar(values[i], coercion.dtype, coercion.name)
            known = bind.bind_dims(self.spec, {i: values[i].shape for i in arrays}, values)
            bind.allocate_outs(self.spec, values, known, bound, device)
            shape = self.grid.over_shape(values)
            grid = self.grid.groups(groups, device, values, signature.local_size, shape)
            if is_split(grid, device.caps) is not signature.cut:
                return None
            ready = self._guarded(code, grid, values)
            found = None if is_new else cached(ready, grid, values)
            if found is not None:
                return found
            for i in made if signature.debug else ():
                bind.poison(values[i])
            ready.launch(grid, values)
            return (struct_arguments.results_of_launch(self.spec, {i: wrap(values[i]) for i in made}),)

        found = cached(ready, grid, values)
        if found is not None and arrays:
            form.add(given, found, None if by_call or shapes is not None else resolve)
            self._forms[form_key] = form

    def _arrays(
        self, spec: KernelSpec, values: list[Any]
    ) -> tuple[Device, Callable[[DeviceArray], Any], dict[int, Any], dict[int, DType], list[Any]]:
        """Replace tensors in `values` by their device arrays, and return what a launch needs to know of the arrays.

        That is their device, else the default device; the conversion of allocated Outs to results, which are tensors if
        an argument is one, else device arrays if an argument is one, else NumPy arrays; the NumPy arrays, and the
        element types of all arrays, those of NumPy arrays first, by parameter index; the tensors that count writes.
        """
        __tracebackhide__ = True
        device: Device | None = None
        wrap: Callable[[DeviceArray], Any] = host_arrays.to_host
        hosts: dict[int, Any] = {}
        dtypes: dict[int, DType] = {}
        changed = []
        for i in spec.arrays:
            value = values[i]
            if value is MISSING:
                continue
            if isinstance(value, np.ndarray):
                hosts[i] = value
                continue
            array = value if isinstance(value, DeviceArray) else getattr(value, "__vkjit_array__", None)
            if array is None:
                raise self._not_an_array(value, spec.params[i])
            if array is not value:
                wrap = type(value).__vkjit_wrap__
                values[i] = array
                if spec.params[i].mode != "in" and hasattr(value, "__vkjit_written__"):
                    changed.append(value)
            elif wrap is host_arrays.to_host:
                wrap = _as_it_is
            lies_on = array.buffer.device
            if device is not None and lies_on is not device:
                raise ArgumentError(
                    f"{self.name}(): argument {spec.params[i].name} lies on {lies_on.name}, another argument on "
                    f"{device.name}: move one of them"
                )
            device, dtypes[i] = lies_on, array.dtype
        if hosts:
            dtypes = host_arrays.element_types(spec, hosts) | dtypes
        return device or default_device(), wrap, hosts, dtypes, changed

    def _not_an_array(self, value: Any, param: frontend.ParamSpec) -> ArgumentError:
        if param.mode == "in" and isinstance(value, (list, tuple, bool, int, float, np.generic)):
            return ArgumentError(
                f"{self.name}(): argument {param.name} is a {type(value).__name__}, expected an array: "
                f"pass np.asarray(...) with the element type that you mean"
            )
        found = f"{self.name}(): argument {param.name} is {value if value is None else f'a {type(value).__name__}'}"
        advice = ""
        if type(value).__module__.split(".")[0] in ("torch", "tensorflow", "jax", "jaxlib"):
            advice = ": pass its NumPy array, such as x.numpy(), or make a tensor of it with vk.tensor(...)"
        elif param.mode == "in":
            advice = ": where it is a number, annotate the parameter with its type instead, such as vk.f32"
        return ArgumentError(f"{found}, expected a NumPy array or a vk tensor{advice}")

    def _code(
        self, spec: KernelSpec, device: Device, values: list[Any], bound: dict[str, DType], scalars: dict[int, DType],
        local: Grid, grid: Grid,
    ) -> _Code:  # fmt: skip
        """Return the code for a call.

        Compile it if it is new or the captures of a constant function have changed.
        """
        __tracebackhide__ = True
        arrays = [values[i] for i in spec.arrays]
        restrict = not host_arrays.overlapping(arrays, spec.written)
        debug = boolean_setting("VKJIT_DEBUG") if self._debug is None else self._debug
        sanitize = sanitizer_reports.current_checks() if self._sanitize is None else self._sanitize
        overlaps: tuple[tuple[int, int, bool], ...] = ()
        if sanitize and not restrict:
            pairs = host_arrays.overlapping(arrays, [True] * len(arrays))
            views = [(a.descriptor, a.dtype) for a in arrays]
            overlaps = tuple((spec.arrays[i], spec.arrays[j], views[i] == views[j]) for i, j in pairs)
        cut = is_split(grid, device.caps)
        parts: list[Any] = [device, spec.arrays, local, cut, restrict, debug, sanitize, overlaps, *bound.items()]
        parts += [a.spec_class for a in arrays]
        parts += scalars.values()
        parts += [constant_key(values[i]) for i in spec.constants]
        key = tuple(parts)
        found = self._plans.get(key)
        if found is not None and not (found.captures and found.is_outdated()):
            return found
        args: list[ArrayArg | ScalarArg | ConstArg] = []
        for i, (param, value) in enumerate(zip(spec.params, values, strict=True)):
            if param.kind == "array":
                args.append(ArrayArg(value.dtype, len(value.shape), value.spec_class.contiguous, restrict))
            else:
                args.append(ScalarArg(scalars[i]) if param.kind == "scalar" else ConstArg(value))
        kind = device.caps.kind
        checked = debug or (debug is None and kind in ("cpu", "llvm-cpu", "interpreter"))
        signature = Signature(
            args=tuple(args),
            local_size=local,
            narrow=all(a.spec_class.narrow for a in arrays),
            aligned=kind not in ("llvm-cpu", "interpreter")  # these don't use the alignment
            and all(a.spec_class.aligned for a in arrays),
            backward=any(a.spec_class.backward for a in arrays),
            cut=cut,
            strict=self._strict,
            fast_math=self._fast_math,
            debug=bool(debug),
            bounds=bool(checked or sanitize),
            typevars=tuple(sorted(bound.items())),
            sanitize=sanitize,
            overlaps=overlaps,
        )
        return self._compile(key, device, signature, values)

    def _compile(self, key: tuple[Any, ...], device: Device, signature: Signature, values: list[Any]) -> _Code:
        """Return the code for a signature, compiled unless another key has led to that signature, and store it."""
        __tracebackhide__ = True
        from ..compiler import driver  # imported here, so that the compiler is loaded only when it is needed

        with self._lock:
            for code in list(self._plans.values()):
                if code.plan.device is device and code.signature == signature and not code.is_outdated():
                    self._plans[key] = code
                    return code
            with host_spans.span("compile", self.name):
                artifact = driver.compile_kernel(self._expanded, signature, device.caps)
                told = {
                    "parameters": self._parameters,
                    "scalars": {i: arg.dtype for i, arg in enumerate(signature.args) if isinstance(arg, ScalarArg)},
                    "alignments": plan.alignments(signature, self.__module__),
                }
                made = LaunchPlan(device, replace(artifact, info={**artifact.info, **told}))
                code = self._plans[key] = _Code(signature, made, constant_captures([*values, *self._elements]))
                return code

    def _guarded(self, code: _Code, grid: Grid, values: list[Any]) -> LaunchPlan:
        """Return the plan, or if the launch may exceed the driver's cap on loop iterations, a variant that counts them.

        The variant reports an error below the cap. It is compiled on first use.
        """
        plain = code.plan
        if not plain.may_pass_cap(grid, values):
            return plain
        from ..compiler import driver  # imported here as in `_compile`

        with self._lock:
            if plain.guarded is None:
                artifact = driver.compile_kernel(self._expanded, code.signature, plain.device.caps, guarded=True)
                plain.guarded = LaunchPlan(plain.device, artifact)
            return plain.guarded

    def cost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the memory traffic and operation count of a launch, for profiles: a decorator, `@kernel.cost`.

        The parameters of the function name parameters of the kernel. It receives arrays as `ArrayInfo`s (`.shape`,
        `.size`, `.dtype`, `.nbytes`) and other arguments unchanged, and returns a `vk.Cost`. Raises ArgumentError for
        names that aren't parameters of the kernel.
        """
        wanted = tuple(inspect.signature(function).parameters)
        known = {p.name for p in self.spec.params}
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise ArgumentError(
                f"the cost of {self.name} asks for {', '.join(unknown)}; the kernel has {', '.join(known)}"
            )
        self._cost = lambda values: function(*[values[name] for name in wanted])
        return function

    def _state_cost(
        self, cost: Callable[[dict[str, Any]], Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Report the declared cost of a launch to profile listeners."""
        values = bind.bind(self.spec, args, kwargs)
        if self.spec.size_constants:
            full = struct_arguments.expand_values(self._expanded, self.spec, values)[0]
            shapes = {i: full[i].shape for i in bind.resolve(self._expanded, full).arrays if full[i] is not MISSING}
            sizes = bind.bind_dims(self._expanded, shapes, full)
            for i in self.spec.size_constants:
                values[i] = sizes[self.spec.params[i].name]
        made = iter(result if isinstance(result, tuple) else (result,))
        named = {
            p.name: describe_argument(next(made, None) if value is MISSING else value)
            for p, value in zip(self.spec.params, values, strict=True)
        }
        stated = cost(named)
        for listener in list(host_spans.listeners):
            listener.stated(self.name, stated)


def _form_key(groups: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the key in `Kernel._forms` of a call's form: its grid, number of arguments and keywords."""
    if groups is not None:
        return (groups, len(args), *kwargs)
    return (len(args), *kwargs) if kwargs else len(args)


def _as_it_is(array: DeviceArray) -> DeviceArray:
    return array
