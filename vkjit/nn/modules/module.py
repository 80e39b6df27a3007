"""`Module`: base class of layers and models.

Every parameter, buffer and child module is stored twice: in the instance's `__dict__`, for fast attribute access, and
in one of the registries `_parameters`, `_buffers` and `_modules`. `__setattr__` and `__delattr__` keep both consistent.
Plain attributes of modules, such as `training`, are in places written to `__dict__` directly, which is faster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from vkjit.backends.selection import device as open_device
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError
from vkjit.runtime.device import Device
from vkjit.tensor.argument_errors import ERRORS, explain, explain_errors
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import constructor_arguments as description, meta_device, state
from ..parameter import Parameter, replace_memory
from . import hooks

__all__ = ["Module"]

M = TypeVar("M", bound="Module")


class Module:
    """Base class of layers and models, with parameters, buffers and child modules. Subclasses implement `forward`.

    A `Parameter` or a `Module` that is assigned as an attribute becomes part of the module, and so does a tensor added
    by `register_buffer`: it is listed, moved, saved and loaded with the module. Calling `super().__init__()` is
    customary but not required, since `__new__` initializes the instance.
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent: set[str]
    """Names of buffers that are not part of the state."""
    _hooks: hooks.Hooks | None
    """None until the first hook is registered."""

    def __new__(cls: type[M], *_: Any, **__: Any) -> M:
        self = super().__new__(cls)
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent=set(), _modules={}, _hooks=None
        )  # fmt: skip
        return self

    def __init__(self) -> None:
        pass

    def _no_forward(self, *_: Any, **__: Any) -> Any:
        """Default `forward` of a module that doesn't define one."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): write one that computes its result")

    # an annotated attribute, because type checkers then accept overrides with any parameters
    forward: Callable[..., Any] = _no_forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with the registered hooks."""
        try:
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._hooks.call(self, args, kwargs)
        except ERRORS as error:
            explain(error, self.forward, args, kwargs, type(self).__name__)
            raise

    # -- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        registries: tuple[dict[str, Any], ...] = (self._parameters, self._buffers, self._modules)
        target: Any = None  # the registry that lists the value; None for plain attributes
        if isinstance(value, Parameter):
            target = self._parameters
        elif isinstance(value, Module):
            target = self._modules
        elif name in self._buffers and (value is None or isinstance(value, Tensor)):
            target = self._buffers
        elif value is None:  # stays in the registry that has the name
            target = next((r for r in registries if name in r), None)
        elif name in self._parameters and isinstance(value, Tensor):
            raise ArgumentError(
                f"{type(self).__name__}.{name} is a parameter, found a plain tensor: wrap it in vk.nn.Parameter(...)"
            )
        else:  # a plain value can't replace an entry of a registry
            descriptions = ("parameter, a vk.nn.Parameter", "buffer, a tensor", "child, a vk.nn.Module")
            entry = next((d for d, r in zip(descriptions, registries, strict=True) if name in r), None)
            if entry is not None:
                raise ArgumentError(f"{type(self).__name__}.{name} is a {entry} or None, found {type(value).__name__}")
        for registry in registries:
            if registry is not target:
                registry.pop(name, None)
        if target is not self._buffers:
            self._non_persistent.discard(name)
        if target is not None:
            target[name] = value
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._modules):
            registry.pop(name, None)
        self._non_persistent.discard(name)
        object.__delattr__(self, name)

    def _check_name(self, name: str, registry: Mapping[str, Any]) -> None:
        """Raise ArgumentError if a name isn't valid for an entry of `registry`, or belongs to another attribute."""
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(f"a name is a string without dots and not empty, found {name!r}")
        if name not in registry and hasattr(self, name):
            raise ArgumentError(f"{type(self).__name__} has an attribute {name!r} already: choose another name")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name. None reserves the name in a layer that lacks the parameter, such as a bias."""
        self._check_name(name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(f"register_parameter({name!r}) takes a vk.nn.Parameter, found {type(param).__name__}")
        self._parameters[name] = param
        object.__setattr__(self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is moved with the module but not learned.

        It is part of `state_dict()` only if `persistent`.
        """
        self._check_name(name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(f"register_buffer({name!r}) takes a tensor, found {type(tensor).__name__}")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent.discard(name)
        else:
            self._non_persistent.add(name)
        object.__setattr__(self, name, tensor)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under a name."""
        self._check_name(name, self._modules)
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(f"a child of a module is a vk.nn.Module, found {type(module).__name__}")
        self._modules[name] = module
        object.__setattr__(self, name, module)

    register_module = add_module

    # -- members

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the direct children with their names, each once."""
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the direct children."""
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module (named `prefix`) and all descendants with dotted names.

        A module that has several names is yielded once: `memo` collects the ids of the modules yielded so far. With
        remove_duplicate=False it is yielded under each of its names.
        """
        seen = set() if memo is None else memo
        if id(self) in seen:
            return
        if remove_duplicate:
            seen.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all descendants."""
        return (module for _, module in self.named_modules())

    def _named_members(
        self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        """Yield the entries of one registry (`_parameters` or `_buffers`) of this module and, with `recurse`, its
        descendants.
        """
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for owner_name, module in owners:
            for name, member in getattr(module, registry).items():
                if member is None or (remove_duplicate and id(member) in seen):
                    continue
                seen.add(id(member))
                yield (f"{owner_name}.{name}" if owner_name else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters with dotted names. A shared parameter appears only under its first name, unless
        remove_duplicate=False.
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers with dotted names."""
        for module in self.modules() if recurse else (self,):  # the caller may read the buffers
            module._flush_cached_buffers()
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def _descend(self, target: str, caller: str) -> Module:
        """Return the descendant with the dotted name `target`. `caller` is the text of the public call, for error
        messages.
        """
        module: Module = self
        parts = target.split(".") if target else []
        for position, part in enumerate(parts):
            child = module._modules.get(part)
            if child is None:
                parent_name = ".".join(parts[:position]) or type(self).__name__
                raise ArgumentError(
                    f"{caller}: {parent_name} has no child {part!r}, only {sorted(module._modules) or 'none'}"
                )
            module = child
        return module

    def get_submodule(self, target: str) -> Module:
        """Return the descendant with a dotted name; "" is this module."""
        return self._descend(target, f"get_submodule({target!r})")

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter with a dotted name."""
        owner_name, _, name = target.rpartition(".")
        owner = self._descend(owner_name, f"get_parameter({target!r})")
        parameter = owner._parameters.get(name)
        if parameter is None:
            raise ArgumentError(
                f"get_parameter({target!r}): there is no such parameter, only {sorted(owner._parameters)}"
            )
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer with a dotted name."""
        owner_name, _, name = target.rpartition(".")
        owner = self._descend(owner_name, f"get_buffer({target!r})")
        owner._flush_cached_buffers()
        buffer = owner._buffers.get(name)
        if buffer is None:
            raise ArgumentError(f"get_buffer({target!r}): there is no such buffer, only {sorted(owner._buffers)}")
        return buffer

    # -- modes, gradients, moves

    def train(self: M, mode: bool = True) -> M:
        """Set `training` of this module and all descendants, which affects layers such as dropout and batch norm.

        `train(False)` is the same as `eval()`.
        """
        for module in self.modules():
            module.__dict__["training"] = mode
        return self

    def eval(self: M) -> M:
        """Set this module and all descendants to inference mode."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freeze (requires_grad=False) or unfreeze all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters or, with set_to_none=False, fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.meta.grad = None
            elif parameter.meta.grad is not None:
                parameter.meta.grad = creation.zeros_like(parameter)

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call fn on all descendants, then on this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    @explain_errors
    def to(self: M, *targets: Any, dtype: Any = None, device: Any = None) -> M:
        """Move parameters and buffers to a device, and convert float ones to a float type: `model.to("cpu")`.

        Each target is a device, an element type, or a tensor whose device and type are used. Parameters remain the same
        objects, so existing optimizers keep working; the optimizers' state is not moved.
        """
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, (Device, int, str)) and not _is_dtype(target):
                device = target
            elif target is not None:
                dtype = target
        target_dtype = None if dtype is None else creation.as_dtype(dtype)
        if target_dtype is not None and not target_dtype.is_float:
            raise DTypeError(f"a module's parameters can be of a float type, found {target_dtype!r}")
        target_device = None if device is None else open_device(device)
        for module in self.modules():
            for registry in (module._parameters, module._buffers):
                for tensor in registry.values():
                    if tensor is not None:
                        _convert(tensor, target_dtype, target_device)
        return self

    def to_empty(self: M, *, device: Any = None) -> M:
        """Allocate new, uninitialized memory on a device for parameters and buffers."""
        meta_device.to_empty(self, open_device(device), only_meta=False)
        return self

    def materialize(self: M, device: Any = None, state: Mapping[str, Any] | None = None) -> M:
        """Allocate memory on a device for a model built on the device "meta", and set its values.

        Values come from `state` (tensors by name), or, if that is None, from each layer's `reset_parameters`. Raises
        ArgumentError, before anything is changed, if a parameter or buffer would get no value.
        """
        meta_device.materialize(self, open_device(device), state)
        return self

    def cpu(self: M) -> M:
        """Move to the device "cpu"."""
        return self.to(device="cpu")

    def float(self: M) -> M:
        """Convert all float parameters and buffers to f32."""
        return self.to(dtype="f32")

    def half(self: M) -> M:
        """Convert all float parameters and buffers to f16."""
        return self.to(dtype="f16")

    def bfloat16(self: M) -> M:
        """Convert all float parameters and buffers to bf16."""
        return self.to(dtype="bf16")

    def double(self: M) -> M:
        """Convert all float parameters and buffers to f64."""
        return self.to(dtype="f64")

    # -- state

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Return parameters and persistent buffers by dotted name (PyTorch's names).

        The tensors share memory with the module but are detached from the tape; with keep_vars, they are the parameters
        and buffers themselves.
        """
        return state.collect(self, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.Incompatible:
        """Copy the values of a state into parameters and buffers, converted to their types.

        Returns the names that are missing from the state, and those that are unexpected in it.

        Values are tensors, or NumPy or PyTorch arrays. With `assign`, values that are tensors aren't copied: the
        parameters and buffers use their memory, type and device.

        Mismatched shapes are an error, and with `strict` so are missing or unexpected names. The ArgumentError lists
        all of them, and nothing is changed.
        """
        return state.load(self, state_dict, strict, assign)

    def _flush_cached_buffers(self) -> None:
        """Write values that a layer caches into its buffers. Called before the state is read."""

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments that recreate this module, by name. Used by `nn.to_config`.

        Arguments that the constructor takes as `*args` are a tuple under the key "*". The default implementation reads
        the attributes of the same names and raises ArgumentError if one is missing. Override it in modules that store
        an argument differently.
        """
        return description.constructor_arguments_of(self)

    # -- hooks

    def _own_hooks(self) -> hooks.Hooks:
        """Return the module's `Hooks`, created at first use."""
        if self._hooks is None:
            self.__dict__["_hooks"] = hooks.Hooks()
        assert self._hooks is not None
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> hooks.Handle:
        """Register a hook to be called as hook(module, args) before `forward`.

        A result other than None replaces the arguments. prepend: the hook is called before the existing ones.
        with_kwargs: the call is hook(module, args, kwargs), and the result is None or (args, kwargs).
        """
        return hooks.Handle(self._own_hooks().before, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> hooks.Handle:
        """Register a hook to be called as hook(module, args, output) after `forward`.

        A result other than None replaces the output. prepend: the hook is called before the existing ones. with_kwargs:
        the call is hook(module, args, kwargs, output).
        """
        return hooks.Handle(self._own_hooks().after, hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Callable[[Module, Any, Any], Any]) -> hooks.Handle:
        """Register a hook to be called as hook(module, grad_input, grad_output) in the backward pass.

        grad_input is a tuple with the gradient, or None, of each positional argument that is a tensor, and grad_output
        one with that of each output. The hook runs when the gradients of all inputs that require one have been
        computed. If exactly one input requires a gradient, a result other than None replaces grad_input.
        """
        return hooks.Handle(self._own_hooks().backward, hook)

    # -- text

    def extra_repr(self) -> str:
        """Return the text between the parentheses of the layer's repr."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__  # PyTorch's hook for subclasses, to show another name

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if len(extra) == 1 and not lines:
            return f"{self._get_name()}({extra[0]})"
        body = "".join(f"\n  {line}" for line in [*extra, *lines])
        return f"{self._get_name()}({body}\n)" if body else f"{self._get_name()}()"

    def __deepcopy__(self: M, memo: dict[int, Any]) -> M:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in self.__dict__.items():
            copied.__dict__[name] = _copied(value, memo)
        return copied


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of an attribute's value. Tensors are copied detached from the tape, once each (`memo`)."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        if id(value) not in memo:
            memo[id(value)] = value.detach().clone()
        return memo[id(value)]
    if type(value) is dict:
        return {key: _copied(item, memo) for key, item in value.items()}
    return copy.deepcopy(value, memo)


def _is_dtype(target: Any) -> bool:
    from vkjit import dtypes

    return isinstance(target, str) and target in dtypes.by_name


def _convert(tensor: Tensor, dtype_override: DType | None, device_override: Device | None) -> None:
    """Move a tensor to `device_override` and, if it holds floats, convert it to `dtype_override`, in place.

    None leaves the device or the type as it is.
    """
    dtype = dtype_override if dtype_override is not None and tensor.dtype.is_float else tensor.dtype
    target = device_override if device_override is not None else tensor.device
    if dtype is tensor.dtype and target is tensor.device:
        return
    moved = tensor.detach().to(dtype=dtype, device=target)
    replace_memory(tensor, moved)
