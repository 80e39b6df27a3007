"""Views of the named arguments of a capture, which follow the argument when a replay replaces it.

`with vk.capture(x=x) as g: y = x[1:]` launches nothing: y is memory of x. After `g.replay(x=other)` it is memory of
`other`, as if the block had run with it. `Tensor` code reads the attribute `_array`; `ArgumentView` makes it a property
that returns the view of the present argument. Views made of such views follow it as well, also outside of the capture,
and so do the operands that autograd keeps of captured operations.

Functions that return their operand itself, as those that write in place, or if there is nothing to do, return a view of
it instead, if it is an argument of an open capture (`own_result`): a replay with another argument doesn't change x.
"""

from __future__ import annotations

from typing import Any

from ..launch.host_arrays import byte_range
from ..runtime.capture import Argument, CapturedVersion, KeptVersion, capture_here, open_captures
from ..runtime.device import DeviceArray
from ..runtime.replays import last_replay
from .tensor import Tensor, handle_new_views

__all__ = ["ArgumentView", "own_result"]


class _Followed:
    """What an `ArgumentView` holds in place of a `DeviceArray`: the array, and the arguments that it is a part of, each
    with the array that the argument was when the view's was computed.
    """

    __slots__ = ("arguments", "array")

    def __init__(self, array: DeviceArray, arguments: tuple[tuple[Argument, DeviceArray], ...]) -> None:
        self.array = array
        self.arguments = arguments

    def present(self) -> DeviceArray:
        """Return the view's array in the present arguments."""
        for argument, known in self.arguments:
            present = argument.array
            if present is not known:
                array = self.array
                offset = array.offset + present.offset - known.offset
                self.array = DeviceArray(present.buffer, offset, array.dtype, array.shape, array.strides)
                self.arguments = tuple((a, present if a is argument else old) for a, old in self.arguments)
        return self.array


class ArgumentView(Tensor):
    """A view of an argument of a graph."""

    __slots__ = ()

    @property
    def _array(self) -> DeviceArray:  # the slot of `Tensor` holds a `_Followed`
        return _followed(self).present()

    @_array.setter
    def _array(self, array: DeviceArray) -> None:
        followed = _followed(self)
        if array.buffer is followed.present().buffer:
            followed.array = array
        else:  # it got other memory
            self.__class__ = Tensor  # type: ignore[assignment]
            _slot.__set__(self, array)

    @property
    def __vkjit_array__(self) -> DeviceArray:
        return self._array

    def detach(self) -> Tensor:
        """Return a tensor that shares memory but isn't tracked by autograd."""
        return _follow(super().detach(), _followed(self).arguments)

    def alias(self) -> Tensor:
        """Return another tensor object with the same memory, version counter and GradMeta."""
        return _follow(super().alias(), _followed(self).arguments)

    def is_unchanged(self, version: KeptVersion) -> bool:
        """As in `Tensor`. The present argument of the capture counts, with its own version counter."""
        arguments = [argument for argument, _ in _followed(self).arguments]
        if isinstance(version, CapturedVersion) and version.capture in open_captures:
            return self._version.value == version.value
        if isinstance(version, CapturedVersion) and any(a in version.capture.arguments for a in arguments):
            last = last_replay(self._array.buffer)
            return last <= version.capture.clock.valid and all(
                version.value == a.captured and a.replayed == getattr(a.memory, "value", 0)
                for a in arguments
                if a in version.capture.arguments
            )
        return super().is_unchanged(version)

    def view_of(self, array: DeviceArray) -> Tensor:
        """Return a view of this tensor's memory with the layout of `array`; it follows the arguments, too."""
        return _follow(super().view_of(array), _followed(self).arguments)


_slot: Any = Tensor.__dict__["_array"]
"""The slot descriptor of `Tensor._array`, which the property `ArgumentView._array` hides."""


def _followed(x: ArgumentView) -> _Followed:
    followed: _Followed = _slot.__get__(x)
    return followed


def _follow(x: Tensor, arguments: tuple[tuple[Argument, DeviceArray], ...]) -> Tensor:
    """Make a tensor object a view that follows the arguments, and return it."""
    if isinstance(x, ArgumentView):  # in another capture, of which it is a part of an argument, too
        followed = _followed(x)
        known = [argument for argument, _ in followed.arguments]
        followed.arguments += tuple(pair for pair in arguments if pair[0] not in known)
    elif x.__class__ is Tensor and arguments:
        array = x._array
        x.__class__ = ArgumentView
        _slot.__set__(x, _Followed(array, arguments))
        for argument, _ in arguments:
            argument.viewed = True
    return x


def _arguments_of(array: DeviceArray) -> tuple[tuple[Argument, DeviceArray], ...]:
    """Return the arguments of captures open here whose memory the array is in, outermost first, and their arrays."""
    buffer = array.buffer
    here = [capture for capture in [*open_captures] if capture.is_here()]
    found = [
        (capture.number, argument)
        for capture in here
        for argument in capture.arguments
        if argument.array.buffer is buffer and _is_within(array, argument.array)
    ]
    return tuple((argument, argument.array) for _, argument in sorted(found, key=lambda pair: pair[0]))


def _is_within(part: DeviceArray, whole: DeviceArray) -> bool:
    """Return True if the part's elements lie between the first and the last byte of the whole array."""
    if 0 in part.shape or 0 in whole.shape:
        return part.offset == whole.offset
    (low, high), (first, last) = byte_range(part), byte_range(whole)
    return first <= low and high <= last


def _new_view(x: Tensor) -> None:
    """Make a tensor object created while work is captured follow the argument that it is a view of."""
    if x.__class__ is Tensor:
        _follow(x, _arguments_of(x._array))


handle_new_views(_new_view)


def own_result(x: Any) -> Any:
    """Return the operand as the result of a function: itself, or a view of it if it is an argument of a capture."""
    if not open_captures or capture_here() is None or not isinstance(x, Tensor) or isinstance(x, ArgumentView):
        return x
    if not _arguments_of(x._array):
        return x
    return x.permute(tuple(range(x.ndim)))
