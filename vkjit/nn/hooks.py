"""Hooks of modules: functions called around `forward` and in backward.

Enters: a module's call. Leaves: its result. A module without hooks has no `Hooks` object, and its calls don't come
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Handle", "Hooks"]

Hook = Callable[..., Any]


class Handle:
    """A registered hook; `remove()` takes it away, and so does leaving a `with` block."""

    def __init__(self, hooks: dict[Handle, Hook], hook: Hook) -> None:
        self._hooks = hooks
        hooks[self] = hook

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
            for hook in registry.values():
                Handle(getattr(copied, name), hook)
        return copied

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs forward with all hooks."""
        for hook in list(self.before.values()):
            replaced = hook(module, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        watch = _Watch(module, list(self.backward.values())) if self.backward else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for hook in list(self.after.values()):
            replaced = hook(module, args, result)
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
        self._missing = 0

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
            self._missing += 1
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
        if self._missing == 0:
            self._fire()

    def _arrived(self, slot: int, gradient: Tensor) -> None:
        self._inputs[slot] = gradient
        self._missing -= 1
        if self._missing == 0:
            self._fire()

    def _fire(self) -> None:
        for hook in self._hooks:
            hook(self._module, tuple(self._inputs), tuple(self._outputs))


def _alias(x: Tensor) -> Tensor:
    """The same memory as a recorded view: a place on the tape that nothing else uses."""
    from ..tensor.views import _reshape

    return _reshape(x, shape=x.shape)
