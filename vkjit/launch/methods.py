"""Kernels as objects of a program: as methods, whose `self` is a constant, and pickled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .. import frontend
from ..compiler.fingerprint import Captures
from ..errors import ArgumentError
from ..lang._portable import Portable

if TYPE_CHECKING:
    from ..frontend import KernelSpec
    from .kernel import Kernel

__all__ = ["Bindable", "BoundKernel"]


class Bindable(Portable):
    """Mixin of `Kernel` for looking it up in classes, and for pickling it."""

    spec: KernelSpec
    _class: type | None = None
    """The class in which the kernel was defined, whose methods its `self` has."""

    def __set_name__(self, owner: type, _name: str) -> None:
        self._class = owner

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the kernel; if it is a method, with the instance that it is looked up in."""
        is_method = self.spec.params and self.spec.params[0].name in ("self", "cls")
        return self if instance is None or not is_method else BoundKernel(cast("Kernel", self), instance)

    def _portable_parts(self) -> dict[str, Any]:
        kernel: Any = self
        names = ("groups", "local", "strict", "fast_math", "debug", "sanitize")
        options = {name: getattr(kernel, f"_{name}") for name in names}
        sources = Captures(self.spec.fn).sources() + (Captures(self._class).sources() if self._class else ())
        return {"spec": self.spec, "options": options, "sources": sources}

    @classmethod
    def _from_parts(cls, **parts: Any) -> Any:
        spec = parts["spec"]
        for fn, source in parts["sources"]:
            frontend.give_source(fn, source)
        make: Any = cls
        return make(spec.fn, spec=spec, over=spec.over, **parts["options"])


class BoundKernel:
    """A kernel with the instance or class that it was looked up in. It is launched as the kernel is."""

    def __init__(self, kernel: Kernel, owner: Any) -> None:
        self.kernel = kernel
        self.owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel; see `Kernel.__call__`."""
        __tracebackhide__ = True
        return self.kernel(self._constant(), *args, **kwargs)

    def __getitem__(self, groups: int | tuple[int, ...]) -> Callable[..., Any]:
        """Return a callable that launches the kernel with this number of workgroups."""
        return functools.partial(self.kernel[groups], self._constant())

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the kernel; `inspect` and `tune` take the owner as their first argument."""
        if name in ("kernel", "owner"):  # while it is unpickled
            raise AttributeError(name)
        value = getattr(self.kernel, name)
        return functools.partial(value, self._constant()) if name in ("inspect", "tune") else value

    def __repr__(self) -> str:
        return f"<{self.kernel!r} of {self.owner!r}>"

    def _constant(self) -> Any:
        """Return the owner. Raises ArgumentError if it may change."""
        from ..frontend.resolve import capturable  # imported here: the compiler is loaded when it is needed

        if not capturable(self.owner):
            kind = type(self.owner).__name__
            name = self.kernel.spec.params[0].name
            raise ArgumentError(
                f"{self.kernel.name}(): {name} is a {kind}, which may change, but is a constant of the kernel: "
                f"decorate {kind} with @dataclass(frozen=True), or make the kernel a @staticmethod and pass what it needs"
            )
        return self.owner
