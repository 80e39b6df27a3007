"""`vk.Tensor`: a strided array on a device, with its place on the autograd tape.

Holds: a `DeviceArray` (buffer, offset, dtype, shape, strides), a version counter shared by all views of the buffer, a
`GradMeta`. Operators and methods are installed by the modules that define the operations (`methods.install`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import staging
from ..autograd.mode import state
from ..autograd.tape import UNTRACKED, GradMeta, RemovableHandle, backward
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..runtime.interface import Device, DeviceArray

if TYPE_CHECKING:
    from ._gen_methods import TensorMethods
else:
    TensorMethods = object

__all__ = ["Tensor", "Version"]


class Version:
    """How often the memory behind a tensor and its views has been written in place: `value` counts all writes,
    `recorded` those that the tape knows of, after which older views no longer have the right place on the tape.
    """

    __slots__ = ("recorded", "value")

    def __init__(self) -> None:
        self.value = 0
        self.recorded = 0


class Size(int):
    """The number of elements of a shape, an int; a call gives the shape, or one of its extents."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> Size:
        made = super().__new__(cls, math.prod(shape))
        made.shape = shape
        return made

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one axis."""
        return self.shape if dim is None else self.shape[dim]


class Tensor(TensorMethods):
    """An n-dimensional array on a device. Make one with `vk.tensor`, `vk.zeros`, `vk.from_numpy` and their like."""

    __slots__ = ("__weakref__", "_array", "_history", "_is_view", "_root", "_version", "meta")
    __array_priority__ = 1000  # NumPy's operators leave mixed expressions to this class
    __array_ufunc__ = None  # NumPy's functions refuse tensors, rather than fetching them from the device unasked

    def __init__(
        self,
        array: Any,
        *,
        version: Version | None = None,
        meta: GradMeta | None = None,
        managed: bool = False,
    ) -> None:
        """`managed`: a copy of `array` (any data, as for `vk.tensor`) whose memory moves to the device that uses it; see
        `ManagedTensor`.
        """
        if managed:
            from .managed import manage

            manage(self, array)
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

    @staticmethod
    def of(array: DeviceArray) -> Tensor:
        """As the constructor, of a fresh array and nothing else."""
        made = Tensor.__new__(Tensor)
        made._array, made._is_view, made._version = array, False, Version()
        made._history, made._root = 0, None
        made.meta = GradMeta(array.shape, array.dtype, array.buffer.device)
        return made

    # -- what it is

    @property
    def __vkjit_array__(self) -> DeviceArray:
        return self._array

    @classmethod
    def __vkjit_wrap__(cls, array: DeviceArray) -> Tensor:
        return Tensor(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        return self._array.strides

    def stride(self, dim: int | None = None) -> Any:
        """PyTorch's form of `strides`."""
        return self.strides if dim is None else self.strides[dim]

    @property
    def size(self) -> Size:
        """The number of elements, as in the array API standard; called, PyTorch's form of `shape`: `x.size(0)`."""
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
        """Number of axes."""
        return self.ndim

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self._array.shape)

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether its elements are floats."""
        return self.dtype.is_float

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.numel() * self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self._array.form.contiguous

    # -- autograd

    @property
    def version(self) -> int:
        """How often its memory has been written in place."""
        return self._version.value

    def bump_version(self) -> None:
        """Called by every operation that writes in place."""
        self._version.value += 1

    def __vkjit_written__(self) -> None:
        """Called when a kernel has written its memory as an Out or InOut argument."""
        self._version.value += 1

    @property
    def memory(self) -> object:
        """One object for all views of a buffer."""
        return self._version

    def shares_memory_with(self, other: Tensor) -> bool:
        """Whether both are views of one buffer, and so change together."""
        return self._version is other._version

    @property
    def is_view(self) -> bool:
        """Whether it shares the memory of a tensor that it was made from."""
        return self._is_view

    @property
    def is_stale(self) -> bool:
        """Whether its memory was changed by a recorded operation on another tensor since this one was made."""
        return self._history != self._version.recorded

    @property
    def root(self) -> Any:
        """The tensor whose memory it is a view of, as autograd follows it: None for a tensor of its own (a detached one
        too), `tape.UNTRACKED` for a view that was made while nothing was recorded.
        """
        return self._root

    def rebase(self) -> None:
        """Gives it a new place on the tape, after a recorded operation has written it in place."""
        self._version.recorded += 1
        self.replace()

    def replace(self) -> None:
        """Gives it a place on the tape that fits what its memory holds now; whoever calls it records how that was made."""
        self._history = self._version.recorded
        meta = GradMeta(self.shape, self.dtype, self.device)
        meta.retains_grad = self.meta.retains_grad
        self.meta = meta

    def follow(self) -> None:
        """Brings a stale view's place on the tape up to date: a view of what its root has become. Raises VkjitError where
        that isn't known.
        """
        from .parts import follow

        if self._history != self._version.recorded:
            follow(self)

    def _follow_if_known(self) -> None:
        """`follow` for questions that have an answer in any case."""
        from .parts import can_follow, follow

        if can_follow(self):
            follow(self)

    @property
    def requires_grad(self) -> bool:
        if self._history != self._version.recorded:
            self._follow_if_known()
        return self.meta.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Makes it a leaf whose gradient is collected in `.grad`."""
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
        """True for tensors that no recorded operation made."""
        if self._history != self._version.recorded:
            self._follow_if_known()
        return self.meta.node is None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has collected."""
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
        """Keeps the gradient of a tensor that is no leaf."""
        self.meta.retains_grad = True

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook(gradient)` in backward; what it returns (a tensor of that shape and type) replaces the gradient. The
        handle's `remove()` takes it away.
        """
        if not self.requires_grad:
            raise ArgumentError("a hook on a tensor that requires no gradient would never be called")
        return RemovableHandle(self.meta.hooks, hook)

    def backward(
        self, gradient: Tensor | None = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Adds the gradient of this tensor to `.grad` of the leaves it depends on."""
        backward([self], [gradient], retain_graph=retain_graph, create_graph=create_graph)

    def detach(self) -> Tensor:
        """The same values, off the tape; shares memory."""
        return Tensor(self._array, version=self._version)

    def detach_(self) -> Tensor:
        """Takes this tensor itself off the tape. Raises ArgumentError for a view, which would stay on it with its root."""
        if self._root is not None:
            raise ArgumentError("detach_() on a view: call it on the tensor that owns the memory, or use .detach()")
        self.meta = GradMeta(self.shape, self.dtype, self.device)
        return self

    @property
    def data(self) -> Tensor:
        """As `detach()`."""
        return self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with memory of its own that requires a gradient where this one does."""
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
        """Another object for the same tensor."""
        made = object.__new__(type(self))
        for kind in type(self).__mro__:
            for slot in vars(kind).values():
                if isinstance(slot, MemberDescriptorType):
                    slot.__set__(made, slot.__get__(self))
        return made

    def __reduce_ex__(self, _: Any) -> Any:
        raise ArgumentError(
            "tensors can't be pickled: save them with vk.io.save or vk.io.save_checkpoint, or send .numpy() to another process"
        )

    def alias(self) -> Tensor:
        """Another object for the same tensor: memory, version and place on the tape are shared."""
        same = Tensor.__new__(Tensor)
        same._array, same._version, same.meta, same._root = self._array, self._version, self.meta, None
        same._history, same._is_view = self._history, self._is_view
        return same

    def placed(self, meta: GradMeta | None) -> Tensor:
        """The same memory at a given place on the tape (None: off the tape)."""
        same = self.detach()
        if meta is not None:
            same.meta = meta
        return same

    def view_of(self, array: DeviceArray) -> Tensor:
        """A view of the same memory with other shape, strides or offset; not recorded."""
        made = Tensor(array, version=self._version)
        if self.meta.requires_grad and not state.enabled:  # it keeps nothing of the graph alive
            made._root = UNTRACKED
        else:
            made._root = self if self._root is None else self._root
        return made

    # -- to the host

    def numpy(self) -> npt.NDArray[Any]:
        """A NumPy copy (bf16 as float32); waits for what computes it."""
        if self.requires_grad:
            raise ArgumentError("this tensor requires a gradient: call .detach().numpy()")
        return self._fetch()

    def _fetch(self) -> npt.NDArray[Any]:
        values = staging.fetch(self._array).reshape(self.shape)
        if self.dtype.name != "bf16":
            return values
        widened: npt.NDArray[Any] = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return widened

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor reaches NumPy by a copy only: leave copy out")
        values = self._fetch()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the tensor, for `numpy.from_dlpack`, `torch.from_dlpack` and their like.

        Without a copy where the host sees the memory (the `cpu` device, lavapipe, integrated GPUs); what was launched so
        far is complete. Elsewhere ask for `dl_device=(1, 0)`, which copies. Raises BufferError for what can't be exported:
        tensors that require a gradient, types that DLPack lacks, copies that `copy=False` forbids.
        """
        from . import dlpack

        if stream is not None:
            raise BufferError(f"stream={stream!r}: memory of the CPU has no stream, leave it out")
        return dlpack.export(self, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device of the memory: (1, 0), the CPU, where the host sees it, else (7, number), Vulkan."""
        from . import dlpack

        return dlpack.device_of(self)

    def torch(self) -> Any:
        """A PyTorch tensor of the same memory, without a copy: both sides see each other's writes.

        On the CPU where the host sees the memory (the device `cpu`, lavapipe, integrated GPUs): call `vk.synchronize()` before
        PyTorch reads what kernels launched later have written. On CUDA for an NVIDIA device: what either side does with the
        memory runs in the order of the calls, as seen from PyTorch's current stream; the host waits for nothing. Raises
        FeatureError where the memory can't be shared, ArgumentError for tensors that require a gradient.
        """
        from .. import foreign

        if self.requires_grad:
            raise ArgumentError("this tensor requires a gradient: call .detach().torch()")
        return foreign.to_torch(self._array)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The array API standard's namespace, `vkjit.array_api`."""
        array_api = importlib.import_module("..array_api", __package__)  # a layer above: found when it is asked for
        if api_version is not None and api_version > array_api.__array_api_version__:
            raise ValueError(
                f"api_version={api_version!r}: this library follows {array_api.__array_api_version__} of the standard"
            )
        return array_api

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The array API's form of `to(device=...)`."""
        if stream is not None:
            raise ArgumentError(
                f"stream={stream!r}: leave it out, transfers are ordered after what was launched before"
            )
        moved: Tensor = self.to(device=device)
        return moved

    def item(self) -> Any:
        """The value of a tensor of one element as a Python number."""
        if self.numel() != 1:
            raise ArgumentError(f"item() needs a tensor of one element, found shape {self.shape}")
        return self._fetch().reshape(()).item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
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

    def __hash__(self) -> int:
        return id(self)


# machine code that launches may count instead of calling it
Tensor.__vkjit_written__.counter = (Tensor, "_version", Version, "value")  # type: ignore[attr-defined]
# launches read it of each argument, and the slot itself costs them no call
Tensor.__vkjit_array__ = vars(Tensor)["_array"]  # type: ignore[method-assign]


def as_shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    """`(2, 3)` from `f(2, 3)` or `f((2, 3))`, checked to be ints of at least 0."""
    flat = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else tuple(sizes)
    for size in flat:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(f"a shape consists of ints of at least 0, found {flat}")
    return tuple(int(size) for size in flat)
