"""Properties of operations: the same line of code runs in PyTorch (f64) and in vkjit; results and gradients match.

A failed `Operation` raises an AssertionError that names the operation, the shapes and the worst element. Bounds follow
from mixed stability: a correct f32 result equals the result for inputs perturbed by k u, perturbed by k u itself (u =
2^-24 relative, k the number of terms of an element plus 16). The effect of perturbed inputs is measured in f64.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

import vkjit as vk
from vkjit.nn import functional
from vkjit.stdlib.registry import forcing_class

__all__ = ["Operation", "check_case", "check_guarded", "check_operation", "is_present"]

UNIT = 2.0**-24
TINY = 2.0**-126
RERUNS = 3


@dataclass(frozen=True)
class Operation:
    """An operation `call(F, xp, *tensors)`, where F is `nn.functional` and xp the package of either library.

    shapes: a tuple of shapes per case. kinds: variants to run, "cpu" and "gpu" on the interpreter, or a device name.
    fixed: generators of arrays without gradients, by position, called with a random generator and the shape. exact:
    results must be equal. gradients: compare gradients, too. limits: "module.NAME" of library constants to replace, so
    that small inputs reach code for large ones. refused: the inputs are invalid, and the kernel must report them.
    """

    name: str
    call: Callable[..., Any]
    shapes: Sequence[Sequence[tuple[int, ...]]]
    kinds: Sequence[str] = ("cpu",)
    fixed: dict[int, Callable[[Any, tuple[int, ...]], Any]] | None = None
    positive: bool = False
    exact: bool = False
    gradients: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    refused: bool = False


def check_operation(operation: Operation) -> None:
    """Check all cases on all available kinds of device."""
    for number in range(len(operation.shapes)):
        for kind in operation.kinds:
            if is_present(kind):
                check_case(operation, number, kind)


def check_case(operation: Operation, number: int, kind: str, interpreter: Any = "interpreter") -> None:
    """Check one case on one kind of device."""
    what = f"{operation.name} ({kind}) for shapes {list(operation.shapes[number])}"
    forced = forcing_class(kind) if kind in ("cpu", "gpu") else contextlib.nullcontext()
    chosen = interpreter if kind in ("cpu", "gpu") else _DEVICES.get(kind, kind)
    with vk.use_device(chosen), forced, _limited(operation):
        if operation.refused:
            _expect_report(operation, _arrays(operation, operation.shapes[number], number), what)
            return
        moved = _moved(operation, number)
        found = _ours(operation, moved.arrays)
    moved.compare(found, what)


def _expect_report(operation: Operation, arrays: list[Any], what: str) -> None:
    """Check that a kernel reports the invalid inputs in the forward pass, before any out-of-bounds access."""
    try:
        _ours(operation, arrays)
        vk.device().synchronize()
    except vk.KernelAssertionError:
        return
    raise AssertionError(f"{what}: nothing is reported")


def check_guarded(operation: Operation, number: int, kind: str, interpreter: Any) -> None:
    """Run a case with invalid inputs on sanitized kernels without asserts: no other error may follow."""
    with vk.use_device(interpreter), forcing_class(kind), _limited(operation):
        try:
            _ours(operation, _arrays(operation, operation.shapes[number], number))
            vk.device().synchronize()
        except vk.KernelAssertionError:
            return  # from another kernel
        except vk.KernelError as error:
            raise AssertionError(f"{operation.name} ({kind}): wrong inputs lead to {error}") from error


@contextlib.contextmanager
def _limited(operation: Operation) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in operation.limits.items():
            module, _, attribute = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(f"vkjit.stdlib.{module}"), attribute, value))
        yield


_DEVICES = {"llvm": "cpu"}

_MOVED: dict[tuple[int, int], tuple[Operation, _Moved]] = {}
"""Reference results by operation and case number."""


def _moved(operation: Operation, number: int) -> _Moved:
    key = (id(operation), number)
    if key not in _MOVED:
        arrays = _arrays(operation, operation.shapes[number], number)
        _MOVED[key] = (operation, _Moved(operation, arrays))
    return _MOVED[key][1]


def is_present(kind: str) -> bool:
    """True if there is a device of the kind."""
    return _present("interpreter" if kind in ("cpu", "gpu") else _DEVICES.get(kind, kind))


@functools.cache
def _present(device: str) -> bool:
    return any(device in info.name.lower() or device == info.kind for info in vk.devices())


def _arrays(operation: Operation, shapes: Sequence[tuple[int, ...]], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    made = []
    for position, shape in enumerate(shapes):
        fixed = (operation.fixed or {}).get(position)
        values = fixed(rng, shape) if fixed is not None else rng.standard_normal(shape).astype(np.float32)
        made.append(np.abs(values) + 0.1 if operation.positive and values.dtype.kind == "f" else values)
    return made


def _weights(shape: Sequence[int], number: int) -> Any:
    return np.random.default_rng(number + 100).uniform(0.5, 1.5, tuple(shape)).astype(np.float32)


def _results(operation: Operation, tensors: list[Any], outputs: Any, make: Callable[[Any], Any], to: Any) -> list[Any]:
    """Return the outputs, then the gradients of float inputs."""
    outputs_list = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    made = [to(o) for o in outputs_list]
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    if operation.gradients and leaves:
        terms = [(o * make(_weights(o.shape, n))).sum() for n, o in enumerate(outputs_list) if o.requires_grad]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        total.backward()
        made += [to(leaf.grad) for leaf in leaves if leaf.grad is not None]
    return made


def _ours(operation: Operation, arrays: list[Any]) -> list[Any]:
    fixed = operation.fixed or {}
    tensors = [
        vk.tensor(a, requires_grad=operation.gradients and a.dtype.kind == "f" and i not in fixed)
        for i, a in enumerate(arrays)
    ]
    outputs = operation.call(functional, vk, *tensors)
    return _results(operation, tensors, outputs, vk.tensor, lambda t: t.detach().numpy())


def _theirs(operation: Operation, arrays: list[Any], moved: Callable[[Any], Any] = lambda a: a) -> list[Any]:
    import torch

    fixed = operation.fixed or {}
    tensors = [
        torch.tensor(
            moved(a.astype(np.float64)) if a.dtype.kind == "f" else a,
            requires_grad=operation.gradients and a.dtype.kind == "f" and i not in fixed,
        )
        for i, a in enumerate(arrays)
    ]
    outputs = operation.call(torch.nn.functional, torch, *tensors)
    return _results(
        operation, tensors, outputs, lambda w: torch.tensor(moved(w.astype(np.float64))), lambda t: t.detach().numpy()
    )


class _Moved:
    """Reference results, and how much they change with perturbed inputs."""

    def __init__(self, operation: Operation, arrays: list[Any]) -> None:
        self.operation = operation
        self.arrays = arrays
        self.expected = _theirs(operation, arrays)
        self.rounds = (max((a.size for a in arrays), default=1) + 16) * UNIT
        self._spread: list[Any] | None = None

    def spread(self) -> list[Any]:
        """Return the largest change of each result under perturbation."""
        if self._spread is None:
            self._spread = [np.zeros(np.shape(e)) for e in self.expected]
            for seed in range(RERUNS):
                rng = np.random.default_rng(seed + 500)

                def moved(a: Any, rng: Any = rng) -> Any:
                    return a * (1 + self.rounds * rng.uniform(-1, 1, a.shape))

                again = _theirs(self.operation, self.arrays, moved)
                for widest, one, two in zip(self._spread, self.expected, again, strict=True):
                    if one.dtype.kind == "f":
                        with np.errstate(invalid="ignore"):  # for infinities
                            np.maximum(widest, np.abs(one - two), out=widest)
        return self._spread

    def compare(self, found: list[Any], what: str) -> None:
        assert len(found) == len(self.expected), f"{what}: {len(found)} results, expected {len(self.expected)}"
        for number, (one, two) in enumerate(zip(found, self.expected, strict=True)):
            assert one.shape == two.shape, f"{what}: result {number} has the shape {one.shape}, expected {two.shape}"
            if two.dtype.kind != "f" or self.operation.exact:
                assert (one == two).all(), f"{what}: result {number} differs: {one} instead of {two}"
                continue
            allowed = self.rounds * np.abs(two) + 4 * self.spread()[number] + TINY
            with np.errstate(invalid="ignore"):
                same = (np.abs(one - two) <= allowed) | (np.isnan(one) & np.isnan(two)) | (one == two)
            if not same.all():
                worst = np.unravel_index(int(np.argmax(~same)), same.shape)
                raise AssertionError(f"{what}: result {number} at {worst} is {one[worst]}, expected {two[worst]}")
