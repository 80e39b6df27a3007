"""Module hooks: functions called around `forward` and in the backward pass.

A module without hooks has no `Hooks` object, and its calls bypass this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkjit.errors import ArgumentError
from vkjit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Handle", "Hooks"]

Hook = Callable[..., Any]


class Handle:
    """Handle of a registered hook. `remove()`, or leaving a `with` block, removes the hook.

    hooks: the registry to add the hook to, a dictionary in call order. prepend: insert the hook before the existing
    ones.
    """

    def __init__(self, hooks: dict[Handle, Hook], hook: Hook, prepend: bool = False, with_kwargs: bool = False) -> None:
        self._hooks = hooks
        self.with_kwargs = with_kwargs
        """True if the hook also receives the keyword arguments."""
        # a dictionary iterates in insertion order, so the existing hooks are inserted again after the new one
        existing = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self] = hook
        hooks.update(existing)

    def remove(self) -> None:
        """Remove the hook. May be called more than once."""
        self._hooks.pop(self, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one module in three registries: `before` and `after` forward, and in the `backward` pass.

    The registries are dictionaries in call order.
    """

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
        """Run the module's `forward` with all hooks."""
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
        backward_call = _BackwardHookCall(module, list(self.backward.values())) if self.backward else None
        if backward_call is not None:
            args = backward_call.inputs(args)
        result = module.forward(*args, **kwargs)
        for handle, hook in list(self.after.items()):
            replaced = hook(module, args, kwargs, result) if handle.with_kwargs else hook(module, args, result)
            if replaced is not None:
                result = replaced
        return result if backward_call is None else backward_call.outputs(result)


class _BackwardHookCall:
    """State of the backward hooks for one call of a module.

    The call's input and output tensors are replaced by aliases: views of the same memory whose gradients belong to this
    call only. Tensor hooks on the aliases collect the gradients. When the gradients of all inputs that require one have
    been computed, the module's backward hooks run.
    """

    def __init__(self, module: Module, hooks: list[Hook]) -> None:
        self._module = module
        self._hooks = hooks
        self._outputs: list[Tensor | None] = []
        self._inputs: list[Tensor | None] = []
        self._awaited = self._missing = 0
        """Number of inputs that require a gradient (`_awaited`), and number of these gradients that haven't been
        computed yet in the current backward pass (`_missing`).
        """

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the call, with each tensor that requires a gradient replaced by an alias."""
        replaced = list(args)
        tensors = [i for i, value in enumerate(args) if isinstance(value, Tensor)]
        self._inputs = [None] * len(tensors)
        for slot, position in enumerate(tensors):  # slot: the index in `_inputs`; position: that in the arguments
            if not args[position].requires_grad:
                continue
            replaced[position] = _alias(args[position])
            replaced[position].register_hook(lambda gradient, slot=slot: self._store_input_gradient(slot, gradient))
            self._awaited += 1
        self._missing = self._awaited
        return tuple(replaced)

    def outputs(self, result: Any) -> Any:
        """Return the result of the call, with each tensor that requires a gradient replaced by an alias."""
        single = isinstance(result, Tensor)
        values = [result] if single else list(result) if isinstance(result, (tuple, list)) else []
        self._outputs = [None] * len(values)
        for slot, value in enumerate(values):
            if not isinstance(value, Tensor) or not value.requires_grad:
                continue
            values[slot] = _alias(value)
            values[slot].register_hook(lambda gradient, slot=slot: self._store_output_gradient(slot, gradient))
        if single:
            return values[0]
        return type(result)(values) if values else result

    def _store_output_gradient(self, slot: int, gradient: Tensor) -> None:
        """Tensor hook of output number `slot`: store its gradient. If no input requires a gradient, call the hooks."""
        self._outputs[slot] = gradient
        if self._awaited == 0:
            self._call_hooks()

    def _store_input_gradient(self, slot: int, gradient: Tensor) -> Tensor | None:
        """Tensor hook of input number `slot`: store its gradient.

        If it is the last missing one, call the module's hooks and return the gradient, which they may have replaced.
        """
        self._inputs[slot] = gradient
        self._missing -= 1
        if self._missing:
            return None
        self._missing = self._awaited  # for another backward pass of the same call
        self._call_hooks()
        return self._inputs[slot]

    def _call_hooks(self) -> None:
        """Call the module's backward hooks. Their results replace the input gradients if one input requires a gradient.

        Raises ArgumentError if a hook replaces gradients and several inputs require one: the gradients of the other
        inputs have been passed on already.
        """
        for hook in self._hooks:
            replaced = hook(self._module, tuple(self._inputs), tuple(self._outputs))
            if replaced is None:
                continue
            replacements = replaced if isinstance(replaced, tuple) else (replaced,)
            if len(replacements) != len(self._inputs):
                raise ArgumentError(
                    f"a backward hook of {type(self._module).__name__} returned {len(replacements)} gradients for "
                    f"{len(self._inputs)} inputs"
                )
            if self._awaited > 1 and any(a is not b for a, b in zip(replacements, self._inputs, strict=True)):
                raise ArgumentError(
                    f"a backward hook can replace the gradient of one input, this call of {type(self._module).__name__} has "
                    f"{self._awaited} that require one: hook the tensors themselves (Tensor.register_hook)"
                )
            if self._awaited:
                self._inputs = list(replacements)


def _alias(x: Tensor) -> Tensor:
    """Return a view of the whole tensor that is recorded on the tape, as a node that nothing else uses."""
    from vkjit.tensor.ops.views import _reshape

    return _reshape(x, shape=x.shape)
