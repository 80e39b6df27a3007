"""`vk.Tensor`: a strided array on a device, with autograd state.

A tensor has a `DeviceArray` (buffer, offset, dtype, shape, strides), a version counter shared by all views of the
buffer, and a `GradMeta` with its autograd state. The operations are functions in `vkjit.tensor.ops`; `methods.install`
adds them to the class as operators and methods.

A tensor becomes stale if a recorded operation writes its memory through another tensor: its GradMeta then describes the
old values. `view_tracking.follow` updates it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..launch import extensions, host_arrays
from ..runtime.capture import CapturedVersion, KeptVersion, capture_here, open_captures
from ..runtime.device import Device, DeviceArray
from ..runtime.replays import last_replay, writers
from .autograd.mode import recording, state
from .autograd.tape import UNTRACKED, GradMeta, backward

if TYPE_CHECKING:
    from ._gen_methods import TensorMethods
else:
    TensorMethods = object

__all__ = ["Tensor", "Version", "handle_new_views"]

_note_new_view: Callable[[Tensor], None]
"""Called with tensors, perhaps views, that are made while work is captured; see `handle_new_views`."""


def handle_new_views(note: Callable[[Tensor], None]) -> None:
    """Register the function that is told of tensors made while work is captured.

    The function is in `argument_views`, which imports this module and so can't be imported here.
    """
    global _note_new_view
    _note_new_view = note


class Version:
    """Counter of in-place writes to the memory shared by a tensor and its views.

    `value` counts all writes, `recorded` the writes recorded by autograd. A tensor stores the value of `recorded` for
    which its GradMeta is valid as `_history`; if `recorded` has changed since, the tensor is stale.
    """

    __slots__ = ("recorded", "value")

    def __init__(self) -> None:
        self.value = 0
        self.recorded = 0


class RemovableHandle:
    """A hook registered on a tensor; `remove()` unregisters it and may be called any number of times."""

    def __init__(self, meta: GradMeta, hook: Any) -> None:
        self._hooks: list[Any] | None = meta.hooks
        self._hook = hook
        meta.hooks.append(hook)

    def remove(self) -> None:
        """Unregister the hook."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove(self._hook)

    __call__ = remove


class Size(int):
    """The number of elements of a tensor, an int that can also be called as PyTorch's `size()`."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> Size:
        size = super().__new__(cls, math.prod(shape))
        size.shape = shape
        return size

    def __call__(self, dim: int | None = None) -> Any:
        """Return the tensor's shape, or the extent of axis `dim`."""
        return self.shape if dim is None else self.shape[dim]


class Tensor(TensorMethods):
    """An n-dimensional array on a device. Create one with `vk.tensor`, `vk.zeros`, `vk.from_numpy` or similar."""

    __slots__ = ("__weakref__", "_array", "_history", "_is_view", "_root", "_version", "meta")
    __array_priority__ = 1000  # NumPy operators defer to this class in mixed expressions
    __array_ufunc__ = None  # NumPy ufuncs reject tensors rather than silently copying them to the host

    def __init__(
        self,
        array: Any,
        *,
        version: Version | None = None,
        meta: GradMeta | None = None,
        managed: bool = False,
    ) -> None:
        """Wrap a `DeviceArray`.

        For a view, `version` is the version counter of the tensor whose memory it shares. `meta` is the autograd state
        (None: a new leaf). With `managed`, `array` is any data that `vk.tensor` takes; the data is copied to memory
        that migrates to the device that uses it (see `ManagedTensor`).
        """
        if managed:
            self._manage(array)
            return
        if not isinstance(array, DeviceArray):
            raise ArgumentError(
                f"a tensor of a {type(array).__name__} is made by vk.tensor(...), not by vk.Tensor(...)"
            )
        self._array = array
        self._is_view = version is not None
        self._version = version if version is not None else Version()
        self._history = self._version.recorded
        self._root: Any = None
        self.meta = meta if meta is not None else GradMeta(array.shape, array.dtype, array.device)
        if open_captures:
            _note_new_view(self)

    @staticmethod
    def of(array: DeviceArray) -> Tensor:
        """Wrap an array whose memory no other tensor uses; faster than the constructor."""
        tensor = Tensor.__new__(Tensor)
        tensor._array, tensor._is_view, tensor._version = array, False, Version()
        tensor._history, tensor._root = 0, None
        tensor.meta = GradMeta(array.shape, array.dtype, array.buffer.device)
        return tensor

    # -- properties

    @property
    def __vkjit_array__(self) -> DeviceArray:
        return self._array

    @classmethod
    def __vkjit_wrap__(cls, array: DeviceArray) -> Tensor:
        return Tensor(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of each axis, in elements."""
        return self._array.strides

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides in elements, or the stride of one axis, as in PyTorch."""
        if dim is None:
            return self.strides
        if isinstance(dim, int) and not -self.ndim <= dim < self.ndim:
            raise ShapeError(f"stride(): axis {dim} of a tensor with {self.ndim} axes")
        return self.strides[dim]

    @property
    def size(self) -> Size:
        """The number of elements, as in the array API standard; also callable as in PyTorch: `x.size(0)`."""
        return Size(self.shape)

    @property
    def dtype(self) -> DType:
        return self._array.dtype

    @property
    def device(self) -> Device:
        return self._array.device

    @property
    def ndim(self) -> int:
        return len(self._array.shape)

    def dim(self) -> int:
        """Return the number of axes."""
        return self.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self._array.shape)

    nelement = numel

    def element_size(self) -> int:
        """Return the size of one element in bytes."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Return True if the dtype is a float type."""
        return self.dtype.is_float

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.numel() * self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Return True if the elements are dense in C order."""
        return self._array.spec_class.contiguous

    # -- autograd

    @property
    def version(self) -> int:
        """A number that increases with each in-place write to the memory, and with each replay of a graph that writes it."""
        return self._version.value + last_replay(self._array.buffer) if writers else self._version.value

    def kept_version(self) -> KeptVersion:
        """Return the version to which `is_unchanged` compares: autograd keeps it with the values of this tensor."""
        if open_captures and (capture := capture_here(self.device)) is not None:
            return CapturedVersion(self._version.value, capture)
        return self.version

    def is_unchanged(self, version: KeptVersion) -> bool:
        """Return True if the memory has the values that it had when `kept_version` returned this version.

        In a capture, that is true after a replay of its graph, until something else writes the memory.
        """
        if not isinstance(version, CapturedVersion):
            return self.version == version
        last = last_replay(self._array.buffer)
        return self._version.value == version.value and last <= version.capture.clock.valid

    def bump_version(self) -> None:
        """Count an in-place write; called by every operation that writes in place."""
        self._version.value += 1

    def __vkjit_written__(self) -> None:
        """Count a write by a kernel that got this tensor as an Out or InOut argument; called by kernel launches."""
        self._version.value += 1

    def __vkjit_launched__(self, kernel: str, parameter: str) -> None:
        """Check that a kernel may get this tensor as an argument; called by kernel launches.

        Raises ArgumentError if gradients are recorded and the tensor requires one: autograd doesn't see the launch.
        """
        if recording.get() and self.requires_grad:
            raise ArgumentError(
                f"{kernel}(): argument {parameter} requires a gradient, and autograd doesn't record kernels: pass "
                f"{parameter}.detach(), launch it inside vk.no_grad(), or define its gradient in a vk.autograd.Function"
            )

    @property
    def memory_key(self) -> object:
        """An object that is the same for all tensors that share this memory."""
        return self._version

    def shares_memory_with(self, other: Tensor) -> bool:
        """Return True if both tensors share memory, as a tensor and its views do."""
        return self._version is other._version

    @property
    def is_view(self) -> bool:
        """True if the tensor shares the memory of the tensor it was made from."""
        return self._is_view

    @property
    def is_stale(self) -> bool:
        """True if a recorded operation on another tensor has written this tensor's memory since it was made."""
        return self._history != self._version.recorded

    @property
    def root(self) -> Any:
        """The tensor that owns the memory of this view, for tracking in-place writes (see `view_tracking`).

        None for a tensor that isn't a view or is detached, `tape.UNTRACKED` for a view made while recording was off.
        """
        return self._root

    def rebase(self) -> None:
        """Discard the autograd history after an in-place write, and make other views of the memory stale.

        The caller then records the write.
        """
        self._version.recorded += 1
        self.reset_meta()

    def keep_meta(self) -> None:
        """Keep the GradMeta after a write through a tensor that is detached from this one."""
        self._history = self._version.recorded

    def reset_meta(self) -> None:
        """Replace the GradMeta by a new one for the current values; the caller records the operation that made them."""
        self._history = self._version.recorded
        meta = GradMeta(self.shape, self.dtype, self.device)
        meta.retains_grad = self.meta.retains_grad
        self.meta = meta

    @property
    def requires_grad(self) -> bool:
        if self._history != self._version.recorded:
            self._follow_if_possible()
        return self.meta.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Make this tensor a leaf that accumulates its gradient in `.grad`; with False, a constant. Returns the tensor.

        Raises ArgumentError for results of recorded operations, DTypeError for types other than floats.
        """
        if self.meta.node is not None:
            raise ArgumentError(
                "requires_grad can be set on leaves only: this tensor is the result of a recorded operation"
            )
        if value and not self.dtype.is_float:
            raise DTypeError(f"only float tensors can require a gradient, this one holds {self.dtype!r}")
        self.meta.requires_grad = value
        return self

    @property
    def is_leaf(self) -> bool:
        """True if the tensor isn't the result of a recorded operation."""
        if self._history != self._version.recorded:
            self._follow_if_possible()
        return self.meta.node is None

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by `backward`, or None."""
        return self.meta.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self.meta.grad = None
            return
        if not isinstance(value, Tensor):
            raise ArgumentError(f"a gradient is a tensor or None, found {type(value).__name__}: use vk.tensor(...)")
        if value.shape != self.shape:
            raise ArgumentError(f"a gradient of shape {value.shape} doesn't fit a tensor of {self.shape}")
        if not value.dtype.is_float or value.device is not self.device:
            raise ArgumentError(
                f"a gradient holds floats and lies with its tensor, on {self.device}: found {value.dtype} on {value.device}"
            )
        self.meta.grad = value

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf tensor in `.grad`."""
        self.meta.retains_grad = True

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(gradient)` during backward; a returned tensor (same shape and dtype) replaces the gradient.

        The handle's `remove()` removes the hook.
        """
        if not self.requires_grad:
            raise ArgumentError("a hook on a tensor that requires no gradient would never be called")
        return RemovableHandle(self.meta, hook)

    def backward(
        self, gradient: Tensor | None = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Compute the gradients of this tensor with respect to the leaves it depends on, and add them to their `.grad`.

        `gradient` is the gradient with respect to this tensor; it may be omitted for a tensor of one element.
        """
        backward([self], [gradient], retain_graph=retain_graph, create_graph=create_graph)

    @staticmethod
    def sharing(array: DeviceArray, version: Version) -> Tensor:
        """Return a tensor, detached, with this memory and version counter."""
        return Tensor(array, version=version)

    def detach(self) -> Tensor:
        """Return a tensor that shares memory but isn't tracked by autograd."""
        return Tensor(self._array, version=self._version)

    def detach_(self) -> Tensor:
        """Detach this tensor from its autograd history in place.

        Raises ArgumentError for a view, which would stay attached to its root.
        """
        if self._root is not None:
            raise ArgumentError("detach_() on a view: call it on the tensor that owns the memory, or use .detach()")
        self.meta = GradMeta(self.shape, self.dtype, self.device)
        return self

    @property
    def data(self) -> Tensor:
        """Same as `detach()`."""
        return self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Return a leaf with its own memory, the same requires_grad, and a copy of the gradient.

        Raises ArgumentError for non-leaf tensors.
        """
        if not self.is_leaf:
            raise ArgumentError("only leaves can be copied deeply: call .detach() or .clone() on this tensor")
        copied: Tensor = self.detach().clone()
        if self.requires_grad:
            copied.requires_grad_()
        if self.grad is not None:
            copied.grad = self.grad.detach().clone()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Tensor:
        """Return another tensor object that refers to the same memory and autograd state."""
        copied = object.__new__(type(self))
        # copy the slots of all base classes
        for base in type(self).__mro__:
            for slot in vars(base).values():
                if isinstance(slot, MemberDescriptorType):
                    slot.__set__(copied, slot.__get__(self))
        return copied

    def __reduce_ex__(self, _: Any) -> Any:
        raise ArgumentError(
            "tensors can't be pickled: save them with vk.io.save or vk.io.save_checkpoint, or send .numpy() to another process"
        )

    def alias(self) -> Tensor:
        """Return another tensor object with the same memory, version counter and GradMeta.

        An in-place operation on either object later gives that object a GradMeta of its own.
        """
        same = Tensor.__new__(Tensor)
        same._array, same._version, same.meta = self._array, self._version, self.meta
        same._history, same._is_view = self._history, self._is_view
        same._root = None
        if open_captures:
            _note_new_view(same)
        return same

    def with_grad_meta(self, meta: GradMeta | None) -> Tensor:
        """Return a tensor with the same memory and the given autograd state (None: detached)."""
        same = self.detach()
        if meta is not None:
            same.meta = meta
        return same

    def view_of(self, array: DeviceArray) -> Tensor:
        """Return a view of this tensor's memory with the layout of `array`; the view isn't recorded."""
        view = Tensor(array, version=self._version)
        # without recording the view gets no root: a reference to self would keep the graph alive
        if self.meta.requires_grad and not recording.get():
            view._root = UNTRACKED
        else:
            view._root = self if self._root is None else self._root
        return view

    # -- conversion to host and other libraries

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array (bf16 as float32); waits for pending work on the tensor."""
        if self.requires_grad:
            raise ArgumentError("this tensor requires a gradient: call .detach().numpy()")
        return self._fetch()

    def _fetch(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array, even if the tensor requires a gradient."""
        values = host_arrays.fetch(self._array).reshape(self.shape)
        if self.dtype.name != "bf16":
            return values
        # `values` are the bits of bf16, which are the upper half of an f32
        widened: npt.NDArray[Any] = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return widened

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor reaches NumPy by a copy only: leave copy out")
        values = self._fetch()
        return values if dtype is None else values.astype(dtype, copy=False)

    def torch(self) -> Any:
        """Return a PyTorch tensor that shares this memory: each side sees the other's writes.

        It is a CPU tensor if the memory is host-visible (the `cpu` device, lavapipe, integrated GPUs); call
        `vk.synchronize()` before PyTorch reads results of kernels launched later. On an NVIDIA device it is a CUDA
        tensor; accesses from both sides are ordered as called, relative to PyTorch's current stream, without blocking
        the host. Raises FeatureError if the memory can't be shared, ArgumentError if the tensor requires a gradient.
        """
        from ..interop import torch as foreign

        if self.requires_grad:
            raise ArgumentError("this tensor requires a gradient: call .detach().torch()")
        return foreign.to_torch(self._array)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return the array API standard's namespace, `vkjit.array_api`."""
        array_api = extensions.get("array namespace")()
        if api_version is not None and api_version > array_api.__array_api_version__:
            raise ValueError(
                f"api_version={api_version!r}: this library follows {array_api.__array_api_version__} of the standard"
            )
        return array_api

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """Return the tensor on a device: `to(device=...)` as the array API standard spells it."""
        if stream is not None:
            raise ArgumentError(
                f"stream={stream!r}: leave it out, transfers are ordered after what was launched before"
            )
        moved: Tensor = self.to(device=device)
        return moved

    def item(self) -> Any:
        """Return the value of a one-element tensor as a Python number."""
        if self.numel() != 1:
            raise ArgumentError(f"item() needs a tensor of one element, found shape {self.shape}")
        return self._fetch().reshape(()).item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self._fetch().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"only integer tensors can be an index, this one holds {self.dtype!r}")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ArgumentError(f"the truth of a tensor of shape {self.shape} is ambiguous: use .any() or .all()")
        return bool(self.item())

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        body = np.array2string(self._fetch(), separator=", ", prefix="tensor(", threshold=100)
        parts = [body, f"dtype={self.dtype!r}", f"device={self.device.name!r}"]
        if self.meta.node is not None:
            parts.append(f"from={self.meta.node.name}")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"tensor({', '.join(parts)})"

    def __format__(self, spec: str) -> str:
        """Format the number of a 0-d tensor, as in f"{loss:.3f}". Raises ArgumentError for others with a `spec`."""
        if spec and self.ndim:
            raise ArgumentError(f"a tensor of shape {self.shape} takes no format {spec!r}: only 0-d tensors do")
        return format(self.item() if spec else str(self), spec)

    def __hash__(self) -> int:
        return id(self)


# compiled launch code may increment this counter instead of calling the method
Tensor.__vkjit_written__.counter = (Tensor, "_version", Version, "value")  # type: ignore[attr-defined]
# cached launches read this: whether the tensor requires a gradient, whether it is stale, whether gradients are recorded
Tensor.__vkjit_recording__ = operator.attrgetter(  # type: ignore[attr-defined]
    "meta.requires_grad", "_history", "_version.recorded", "__vkjit_mode__.enabled"
)
Tensor.__vkjit_mode__ = state  # type: ignore[attr-defined]
# compiled launch code refuses tensors that require a gradient or are stale by these slots
Tensor.__vkjit_launched__.slots = (  # type: ignore[attr-defined]
    (Tensor, "meta", GradMeta, "requires_grad"), (Tensor, "_version", Version, "recorded"), "_history",
)  # fmt: skip
# launches read this for each argument; the slot descriptor avoids a property call
Tensor.__vkjit_array__ = vars(Tensor)["_array"]  # type: ignore[method-assign]


def as_shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape that a caller gave as separate sizes, `f(2, 3)`, or as one sequence, `f((2, 3))`.

    Raises ArgumentError unless the sizes are non-negative ints.
    """
    flat = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else tuple(sizes)
    for size in flat:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(f"a shape consists of ints of at least 0, found {flat}")
    return tuple(int(size) for size in flat)
