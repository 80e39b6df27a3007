"""Hooks of modules: functions called around `forward` and in backward.

Enters: a module's call. Leaves: its result. A module without hooks has no `Hooks` object, and its calls don't come
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Handle", "Hooks"]

Hook = Callable[..., Any]


class Handle:
    """A registered hook; `remove()` takes it away, and so does leaving a `with` block."""

    def __init__(self, hooks: dict[Handle, Hook], hook: Hook, first: bool = False, with_kwargs: bool = False) -> None:
        self._hooks = hooks
        self.with_kwargs = with_kwargs
        """Whether the hook is called with the keyword arguments too."""
        others = dict(hooks) if first else {}
        if first:
            hooks.clear()
        hooks[self] = hook
        hooks.update(others)

    def remove(self) -> None:
        """Takes the hook away; may be called again."""
        self._hooks.pop(self, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one module, in the order of registration."""

    def __init__(self) -> None:
        self.before: dict[Handle, Hook] = {}
        self.after: dict[Handle, Hook] = {}
        self.backward: dict[Handle, Hook] = {}

    def __deepcopy__(self, _: dict[int, Any]) -> Hooks:
        copied = Hooks()
        for name, registry in vars(self).items():
            for handle, hook in registry.items():
                Handle(getattr(copied, name), hook, with_kwargs=handle.with_kwargs)
        return copied

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs forward with all hooks."""
        for handle, hook in list(self.before.items()):
            replaced = hook(module, args, kwargs) if handle.with_kwargs else hook(module, args)
            if replaced is None:
                continue
            if not handle.with_kwargs:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
            elif isinstance(replaced, tuple) and len(replaced) == 2 and isinstance(replaced[1], dict):
                args, kwargs = replaced
            else:
                raise ArgumentError(
                    "a hook with keyword arguments returns None or (args, kwargs), a tuple and a dictionary, found "
                    f"{type(replaced).__name__}"
                )
        watch = _Watch(module, list(self.backward.values())) if self.backward else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for handle, hook in list(self.after.items()):
            replaced = hook(module, args, kwargs, result) if handle.with_kwargs else hook(module, args, result)
            if replaced is not None:
                result = replaced
        return result if watch is None else watch.outputs(result)


class _Watch:
    """Collects the gradients of one call's inputs and outputs, and calls the backward hooks when all have arrived."""

    def __init__(self, module: Module, hooks: list[Hook]) -> None:
        self._module = module
        self._hooks = hooks
        self._outputs: list[Tensor | None] = []
        self._inputs: list[Tensor | None] = []
        self._awaited = self._missing = 0
        """Gradients of inputs: how many come in a backward pass, and how many of them haven't yet."""

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, tensors that require a gradient at a place of their own on the tape."""
        placed = list(args)
        tensors = [i for i, value in enumerate(args) if isinstance(value, Tensor)]
        self._inputs = [None] * len(tensors)
        for slot, position in enumerate(tensors):
            if not args[position].requires_grad:
                continue
            placed[position] = _alias(args[position])
            placed[position].register_hook(lambda gradient, slot=slot: self._arrived(slot, gradient))
            self._awaited += 1
        self._missing = self._awaited
        return tuple(placed)

    def outputs(self, result: Any) -> Any:
        """The result, tensors that require a gradient at a place of their own on the tape."""
        single = isinstance(result, Tensor)
        values = [result] if single else list(result) if isinstance(result, (tuple, list)) else []
        self._outputs = [None] * len(values)
        for slot, value in enumerate(values):
            if not isinstance(value, Tensor) or not value.requires_grad:
                continue
            values[slot] = _alias(value)
            values[slot].register_hook(lambda gradient, slot=slot: self._returned(slot, gradient))
        if single:
            return values[0]
        return type(result)(values) if values else result

    def _returned(self, slot: int, gradient: Tensor) -> None:
        self._outputs[slot] = gradient
        if self._awaited == 0:
            self._fire()

    def _arrived(self, slot: int, gradient: Tensor) -> Tensor | None:
        self._inputs[slot] = gradient
        self._missing -= 1
        if self._missing:
            return None
        self._missing = self._awaited  # for another backward pass of the same call
        self._fire()
        return self._inputs[slot]

    def _fire(self) -> None:
        """Calls the hooks; what they return takes the place of an input's gradient where it is the only one."""
        for hook in self._hooks:
            replaced = hook(self._module, tuple(self._inputs), tuple(self._outputs))
            if replaced is None:
                continue
            given = replaced if isinstance(replaced, tuple) else (replaced,)
            if len(given) != len(self._inputs):
                raise ArgumentError(
                    f"a backward hook of {type(self._module).__name__} returned {len(given)} gradients for "
                    f"{len(self._inputs)} inputs"
                )
            if self._awaited > 1 and any(a is not b for a, b in zip(given, self._inputs, strict=True)):
                raise ArgumentError(
                    f"a backward hook can replace the gradient of one input, this call of {type(self._module).__name__} has "
                    f"{self._awaited} that require one: hook the tensors themselves (Tensor.register_hook)"
                )
            if self._awaited:
                self._inputs = list(given)


def _alias(x: Tensor) -> Tensor:
    """The same memory as a recorded view: a place on the tape that nothing else uses."""
    from ..tensor.views import _reshape

    return _reshape(x, shape=x.shape)
