"""Call every public function, method, layer and optimizer with one argument replaced by a wrong one, and list raw errors.

    python -m tests.faults.wrong_arguments                 # all: minutes
    python -m tests.faults.wrong_arguments vk.conv1d F.    # those whose names start so
    python -m tests.faults.wrong_arguments --messages      # prints vkjit's own messages, too

A call is right if it returns or raises an error of vkjit's, or the TypeError of Python's own binding of arguments. All
others are listed, and the exit code is then 1. Valid arguments are found by trial: parameters get values by name and
annotation, tensors in one of several shapes and types, until the call succeeds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import itertools
import math
import re
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from vkjit import data, nn, optim
from vkjit.errors import CompileError, InternalError, VkjitError
from vkjit.nn import functional as F
from vkjit.tensor import api

__all__ = ["Call", "Failure", "calls", "probe"]

SECONDS, WALL_SECONDS = 10, 120
"""Limits of a call: of processor time, and of time for one that waits."""
MEMORY = 1 << 30
"""Bytes of address space that the command may take beyond those at its start."""

_SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (2, 3, 4), (4,), (4, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4), (2, 4, 4), (1,), (3,), (), (2, 2, 2), (4, 4, 4, 4),
)  # fmt: skip

# values of parameters by name, for functions that share them
_VALUES: dict[str, Any] = {
    "dim": 0, "dim0": 0, "dim1": -1, "dims": (0,), "axis": 0, "start": 0, "end": 1, "step": 1, "steps": 3, "length": 1, "index": 0,
    "shape": (3, 4), "size": (3, 4), "sizes": (2, 2), "k": 1, "n": 3, "kernel_size": 2, "output_size": 2, "num_groups": 1,
    "groups": 1, "reduce": "sum", "equation": "...->...", "chunks": 2, "indices_or_sections": 2, "split_size_or_sections": 1,
    "split_sizes": (1, 2), "pad": (1, 1), "padding": 1, "repeats": 2, "shifts": 1, "source": 0, "destination": -1, "decimals": 1,
    "normalized_shape": (4,), "num_features": 4, "num_channels": 4, "in_channels": 4, "out_channels": 4, "in_features": 4,
    "out_features": 4, "in1_features": 4, "in2_features": 4, "input_size": 4, "hidden_size": 4, "num_embeddings": 8,
    "embedding_dim": 4, "embed_dim": 4, "num_heads": 2, "d_model": 4, "nhead": 2, "num_layers": 1, "lr": 0.1,
    "upscale_factor": 2, "downscale_factor": 2, "scale_factor": 2, "norm_type": 2.0, "N": 4, "row": 3, "col": 3, "high": 3,
    "low": 0, "max_norm": 1.0, "clip_value": 1.0, "threshold": 0.5, "value": 1.0, "fill_value": 1.0, "data": [1.0, 2.0],
    "values": np.ones(3, np.float32), "p": 2.0, "q": 0.5, "exponent": 2.0, "dimension": 0, "name": "a", "mode": True,
    "seed": 1, "num_samples": 2, "batch_size": 2, "drop_last": False, "lengths": [2, 2], "gain": 1.0, "sparsity": 0.5,
    "nonlinearity": "relu", "gamma": 0.9, "step_size": 2, "milestones": [1, 2], "T_max": 3, "T_0": 2, "total_iters": 2,
    "max_lr": 0.5, "base_lr": 0.1, "total_steps": 4, "lr_lambda": lambda _: 0.5, "closure": None, "max": 1.0, "min": 0.0,
    "new_state": (0, 0), "state": (0, 0), "num_classes": 8, "probs": 0.5, "vector": None,
}  # fmt: skip


def _tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    if vk.default_device().name == "meta":
        return vk.empty(shape, dtype=dtype)
    values = (np.arange(math.prod(shape)) % 3).reshape(shape)
    return vk.tensor(values / 4 + 0.25 if dtype.is_float else values, dtype=dtype)


def _f(*shape: int) -> Any:
    return _tensor(shape, vk.f32)


def _i(*shape: int) -> Any:
    return _tensor(shape, vk.i64)


def _b(*shape: int) -> Any:
    return _tensor(shape, vk.boolean)


def wrong_values() -> Iterator[tuple[str, Any]]:
    """Yield what arguments are replaced by, with names; new objects each time, since calls may write to tensors."""
    yield "None", None
    yield "text", "a"
    yield "list of lists", [[1.0, 2.0]]
    yield "list of text", ["a", "b"]
    yield "float", 1.5
    yield "nan", math.nan
    yield "huge int", 2**70
    yield "large int", 2**62
    yield "negative int", -7
    yield "zero", 0
    yield "bool", True
    yield "dict", {"a": 1}
    yield "empty tuple", ()
    yield "long tuple", (1, 1, 1, 1, 1, 1, 1)
    yield "object", object()
    yield "type", vk.i32
    yield "array", np.ones((2, 2), np.float32)
    yield "complex", 1j
    yield "5-d tensor", _f(1, 2, 1, 2, 3)
    yield "0-d tensor", _f()
    yield "i32 tensor", _tensor((2, 2), vk.i32)
    yield "bool tensor", _b(3, 4)
    yield "empty tensor", vk.zeros(0)
    yield (
        "tensor of another device",
        vk.ones(3, 4, device="interpreter" if vk.default_device().name == "meta" else "meta"),
    )


@dataclass
class Call:
    """A callable with the names of its arguments: `make()` returns new valid ones; `known` is False if none are known."""

    name: str
    function: Callable[..., Any]
    make: Callable[[], dict[str, Any]]
    parameters: dict[str, inspect.Parameter]
    known: bool = True


@dataclass(frozen=True)
class Failure:
    """A call that ended in an error that isn't vkjit's."""

    name: str
    parameter: str
    value: str
    error: str

    def __str__(self) -> str:
        return f"{self.name}({self.parameter}={self.value}): {self.error}"


def _is_tensor(parameter: inspect.Parameter) -> bool:
    text = str(parameter.annotation)
    return text.startswith(("Tensor", "Operand", "torch")) or text in ("Any", "<class 'inspect._empty'>")


_ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "addmv": lambda: {"c": _f(3), "a": _f(3, 4), "x": _f(4)},
    "mv": lambda: {"a": _f(3, 4), "b": _f(4)},
    "batch_norm": lambda: {"x": _f(2, 4, 3), "running_mean": _f(4), "running_var": _f(4), "weight": _f(4), "bias": _f(4)},
    "instance_norm": lambda: {"x": _f(2, 4, 3), "running_mean": _f(4), "running_var": _f(4), "weight": _f(4), "bias": _f(4)},
    "layer_norm": lambda: {"x": _f(3, 4), "normalized_shape": (4,), "weight": _f(4), "bias": _f(4)},
    "group_norm": lambda: {"x": _f(2, 4, 3), "num_groups": 2, "weight": _f(4), "bias": _f(4)},
    "clip": lambda: {"x": _f(3, 4), "min": 0.0, "max": 1.0},
    "clamp": lambda: {"x": _f(3, 4), "low": 0.0, "high": 1.0},
    "Tensor.clamp": lambda: {"x": _f(3, 4), "min": 0.0, "max": 1.0},
    "conv1d": lambda: {"x": _f(2, 4, 6), "weight": _f(3, 4, 2), "bias": _f(3)},
    "conv2d": lambda: {"x": _f(2, 4, 6, 6), "weight": _f(3, 4, 2, 2), "bias": _f(3)},
    "conv3d": lambda: {"x": _f(2, 4, 4, 4, 4), "weight": _f(3, 4, 2, 2, 2), "bias": _f(3)},
    "conv_transpose1d": lambda: {"x": _f(2, 4, 4), "weight": _f(4, 3, 2), "bias": _f(3)},
    "conv_transpose2d": lambda: {"x": _f(2, 4, 4, 4), "weight": _f(4, 3, 2, 2), "bias": _f(3)},
    "conv_transpose3d": lambda: {"x": _f(2, 4, 3, 3, 3), "weight": _f(4, 3, 2, 2, 2), "bias": _f(3)},
    "linear": lambda: {"x": _f(2, 4), "weight": _f(3, 4), "bias": _f(3)},
    "diagonal_scatter": lambda: {"x": _f(3, 4), "src": _f(3)},
    "einsum": lambda: {"equation": "ij,jk->ik", "operands": (_f(3, 4), _f(4, 2))},
    "index_put": lambda: {"x": _f(3, 4), "indices": (_i(3),), "values": 1.0},
    "index_put_": lambda: {"x": _f(3, 4), "indices": (_i(3),), "values": 1.0},
    "index_reduce": lambda: {"x": _f(3, 4), "dim": 0, "index": _i(3), "source": _f(3, 4), "reduce": "mean"},
    "index_reduce_": lambda: {"x": _f(3, 4), "dim": 0, "index": _i(3), "source": _f(3, 4), "reduce": "mean"},
    "normal": lambda: {"mean": 0.0, "std": 1.0, "size": (3,)},
    "randint": lambda: {"low": 0, "high": 5, "size": (3,)},
    "randint_like": lambda: {"x": _f(3), "low": 0, "high": 5},
    "scatter": lambda: {"x": _f(3, 4), "dim": 0, "index": _i(3, 4), "src": _f(3, 4)},
    "scatter_": lambda: {"x": _f(3, 4), "dim": 0, "index": _i(3, 4), "src": _f(3, 4)},
    "select_scatter": lambda: {"x": _f(3, 4), "src": _f(4), "dim": 0, "index": 1},
    "to": lambda: {"x": _f(3), "targets": (vk.f16,)},
    "Tensor.where": lambda: {"self": _f(3, 4), "condition": _b(3, 4), "other": _f(3, 4)},
    "where": lambda: {"condition": _b(3, 4), "a": _f(3, 4), "b": _f(3, 4)},
    "dot": lambda: {"x": _f(3), "y": _f(3)},
    "max": lambda: {"x": _f(3, 4), "others": (0,)},
    "min": lambda: {"x": _f(3, 4), "others": (0,)},
    "Tensor.max": lambda: {"x": _f(3, 4), "dim": 0},
    "Tensor.min": lambda: {"x": _f(3, 4), "dim": 0},
    "Tensor.dot": lambda: {"a": _f(3), "b": _f(3)},
    "ctc_loss": lambda: {
        "log_probs": _f(5, 2, 4), "targets": _i(2, 2), "input_lengths": (5, 5), "target_lengths": (2, 2),
    },
    "fold": lambda: {"x": _f(1, 8, 4), "output_size": (4, 4), "kernel_size": 2, "stride": 2},
    "F.unfold": lambda: {"x": _f(1, 2, 4, 4), "kernel_size": 2},
    "interpolate": lambda: {"x": _f(1, 2, 4), "size": 3},
    "local_response_norm": lambda: {"x": _f(2, 4, 3), "size": 2},
    "lp_pool": lambda: {"x": _f(1, 2, 4), "norm_type": 2.0, "axes": 1, "kernel_size": 2},
    "max_unpool": lambda: {"x": _f(1, 1, 1), "indices": _i(1, 1, 1), "axes": 1, "kernel_size": 2},
    "nll_loss": lambda: {"x": _f(3, 4), "target": _i(3), "weight": _f(4)},
    "cross_entropy": lambda: {"x": _f(3, 4), "target": _i(3), "weight": _f(4)},
    "fuse_conv_bn_eval": lambda: {"conv": nn.Conv1d(2, 3, 1).eval(), "bn": nn.BatchNorm1d(3).eval()},
    "fuse_linear_bn_eval": lambda: {"linear": nn.Linear(2, 3).eval(), "bn": nn.BatchNorm1d(3).eval()},
    "new_full": lambda: {"self": _f(3), "args": ((2,), 1.0)},
    "Tensor.__setitem__": lambda: {"x": _f(3, 4), "index": 0, "value": 1.0},
    "Tensor.__getitem__": lambda: {"x": _f(3, 4), "index": 0},
    "Tensor.__pow__": lambda: {"a": _f(3, 4), "b": 2.0},
    "multi_dot": lambda: {"tensors": [_f(3, 4), _f(4, 2), _f(2, 3)]},
    "scaled_dot_product_attention": lambda: {"query": _f(1, 2, 3, 4), "key": _f(1, 2, 3, 4), "value": _f(1, 2, 3, 4)},
    "cdist": lambda: {"a": _f(3, 4), "b": _f(2, 4)},
    "embedding": lambda: {"indices": _i(3), "weight": _f(5, 4)},
    "embedding_bag": lambda: {"indices": _i(2, 3), "weight": _f(5, 4)},
    "vector_to_parameters": lambda: {"vec": _f(6), "parameters": [_f(2), _f(4)]},
    "Transformer": lambda: {
        "d_model": 4, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 8,
    },
    "TransformerEncoderLayer": lambda: {"d_model": 4, "nhead": 2, "dim_feedforward": 8},
    "TransformerDecoderLayer": lambda: {"d_model": 4, "nhead": 2, "dim_feedforward": 8},
    "TransformerEncoder": lambda: {"encoder_layer": nn.TransformerEncoderLayer(4, 2, 8), "num_layers": 1},
    "TransformerDecoder": lambda: {"decoder_layer": nn.TransformerDecoderLayer(4, 2, 8), "num_layers": 1},
    "bilinear": lambda: {"x1": _f(3, 4), "x2": _f(3, 2), "weight": _f(5, 4, 2), "bias": _f(5)},
}  # fmt: skip
"""Arguments by name, with or without the namespace, of functions for which trial finds none or too simple ones."""


def _arguments_by_trial(function: Callable[..., Any], parameters: dict[str, inspect.Parameter]) -> Any:
    """Return a function that makes valid arguments, or None."""
    required = [p for p in parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]

    def made(shape: tuple[int, ...], kinds: tuple[Any, ...], by_name: bool) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        dtypes = itertools.cycle(kinds)
        for parameter in required:
            annotation = str(parameter.annotation)
            if parameter.kind is parameter.VAR_POSITIONAL:
                text_tensor = "Tensor" in annotation or parameter.name == "tensors"
                arguments[parameter.name] = (_tensor(shape, next(dtypes)),) * 2 if text_tensor else (shape,)
            elif annotation.startswith("Sequence[Tensor") or parameter.name == "tensors":
                arguments[parameter.name] = [_tensor(shape, next(dtypes)) for _ in range(2)]
            elif parameter.name in ("params", "parameters"):
                arguments[parameter.name] = [vk.ones(2, requires_grad=True)]
            elif parameter.name == "optimizer":
                arguments[parameter.name] = optim.SGD([vk.ones(2, requires_grad=True)], 0.1)
            elif annotation.startswith("Tensor") or parameter.name in ("self", "x"):
                arguments[parameter.name] = _tensor(shape, next(dtypes))
            elif by_name and parameter.name in _VALUES:
                arguments[parameter.name] = _VALUES[parameter.name]
            else:
                arguments[parameter.name] = _tensor(shape, next(dtypes))
        return arguments

    f, i, b = vk.f32, vk.i64, vk.boolean
    for shape in _SHAPES:
        for kinds in ((f,), (i,), (b,), (f, i), (i, f), (f, f, i), (f, b, f), (f, i, f), (b, f)):
            for by_name in (True, False):
                with contextlib.suppress(Exception):
                    _run(function, made(shape, kinds, by_name), parameters)
                    return lambda: made(shape, kinds, by_name)  # noqa: B023  # returned at once
    return None


def _run(function: Callable[..., Any], arguments: dict[str, Any], parameters: dict[str, inspect.Parameter]) -> Any:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    in_order = True  # as long as no argument was left out, arguments are positional
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            values = arguments.get(name, ())
            positional.extend(values if isinstance(values, tuple) else (values,))
        elif name not in arguments:
            in_order = False
        elif in_order and parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(arguments[name])
        else:
            keywords[name] = arguments[name]
    result = function(*positional, **keywords)
    if inspect.isgenerator(result):
        result = list(itertools.islice(result, 4))
    return result


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters
    except ValueError:  # implemented in C
        return {}
    return {n: p for n, p in found.items() if p.kind is not p.VAR_KEYWORD}


# -- what is called

_INTERNAL = (
    "__array_namespace__ __deepcopy__ __vkjit_recording__ __vkjit_wrap__ backward alias bump_version follow keep_meta rebase "
    "reset_meta sharing view_of with_grad_meta of meta root requires_grad"
)
_SKIPPED = frozenset({"vk.Tensor", *(f"Tensor.{name}" for name in _INTERNAL.split())})
_SPACES: dict[str, Any] = {"F": F, "linalg": vk.linalg, "special": vk.special, "init": nn.init, "utils": nn.utils}


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions and the methods of tensors, with their names."""
    for name in [*api.__all__, *(n for n in vk.lang.__all__ if callable(getattr(vk.Tensor, n, None)))]:
        yield f"vk.{name}", getattr(vk, name)
    for space, module in _SPACES.items():
        yield from ((f"{space}.{name}", getattr(module, name)) for name in module.__all__)
    for name in sorted(dir(vk.Tensor)):
        if (
            not name.startswith("_")
            or (name.endswith("__") and getattr(object, name, None) is None)
            or name == "__eq__"
        ):
            yield f"Tensor.{name}", getattr(vk.Tensor, name)


def _constructions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the constructors of layers, optimizers, schedules and data utilities."""
    for name in nn.__all__:
        value = getattr(nn, name)
        if inspect.isclass(value):
            yield f"nn.{name}", value
    for name in optim.__all__:
        value = getattr(optim, name)
        if callable(value):
            yield f"optim.{name}", value
    schedules = optim.lr_scheduler
    yield from ((f"lr_scheduler.{name}", getattr(schedules, name)) for name in schedules.__all__)
    yield from ((f"data.{name}", getattr(data, name)) for name in data.__all__ if callable(getattr(data, name)))
    yield from ((f"transforms.{name}", getattr(data.transforms, name)) for name in data.transforms.__all__)


def _forward(name: str, layer: Callable[..., Any], arguments: dict[str, Any]) -> Call | None:
    """Return the call of a layer, with inputs by trial."""
    made = layer(**arguments)
    parameters = _parameters(made.forward)
    make = _ARGUMENTS.get(f"{name}.forward") or _arguments_by_trial(made, parameters)
    return (
        None if make is None else Call(f"{name}.forward", lambda *a, **k: layer(**arguments)(*a, **k), make, parameters)
    )


def calls(prefixes: tuple[str, ...] = ("",)) -> Iterator[Call]:
    """Yield everything that is called."""
    for name, function in (*_functions(), *_constructions()):
        if name in _SKIPPED or not callable(function) or not name.startswith(prefixes):
            continue
        parameters = _parameters(function)
        known = _ARGUMENTS.get(name, _ARGUMENTS.get(name.partition(".")[2]))
        make = known or _arguments_by_trial(function, parameters)
        yield Call(name, function, make or dict, parameters, make is not None)
        if make is not None and name.startswith("nn.") and issubclass(function, nn.Module):  # type: ignore[arg-type]
            forward = _forward(name, function, make())
            if forward is not None:
                yield forward


_BINDING = re.compile(r"\(\) (missing|takes|got an unexpected|got multiple|got some|argument after)")


_PROTOCOLS: dict[type[BaseException], re.Pattern[str]] = {
    IndexError: re.compile("index -?[0-9]+ is out of range for"),  # ends iteration by index
    BufferError: re.compile(": .* leave it out$|: copy it over first$"),  # DLPack's
    TypeError: re.compile("^a 0-d tensor (can't be iterated over|has no length)$"),
    NotImplementedError: re.compile("has no forward()"),
}
"""Deliberate errors of the types that Python's protocols prescribe, and what they say."""


def raw_error(error: BaseException) -> str:
    """Return the error as text if it isn't one that a user can be told, else ""."""
    if isinstance(error, (CompileError, InternalError)) or not isinstance(error, VkjitError):
        if isinstance(error, TypeError) and _BINDING.search(str(error)):
            return ""
        if type(error) in _PROTOCOLS and _PROTOCOLS[type(error)].search(str(error)):
            return ""
        entry = error.__traceback__
        while entry is not None and entry.tb_next is not None:
            entry = entry.tb_next
        place = (
            "" if entry is None else f"{entry.tb_frame.f_code.co_filename.rpartition('vkjit/')[2]}:{entry.tb_lineno}"
        )
        return f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:160]}"
    return ""


_LARGE = ("huge int", "large int")


def _alarm(*_: Any) -> None:
    raise TimeoutError(f"no end after {SECONDS} s of processor time, or {WALL_SECONDS} s")


def _limit(seconds: float, wall_seconds: float) -> None:
    """Set the timers that call `_alarm`; 0 stops them."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)


def probe(
    call: Call, messages: Counter[str] | None = None, only: tuple[str, str] | None = None, small: bool = False
) -> Iterator[Failure]:
    """Make the calls of one function, and yield the failures.

    `only` selects a parameter and a wrong value; `small` leaves out numbers that take long or much memory.
    """
    for number, parameter in enumerate(call.parameters.values()):
        if not number and call.name.startswith("Tensor."):
            continue  # the tensor itself
        for label, _ in wrong_values():
            if (only is not None and only != (parameter.name, label)) or (small and label in _LARGE):
                continue
            arguments = call.make()
            wrong = dict(wrong_values())[label]
            arguments[parameter.name] = (wrong,) if parameter.kind is parameter.VAR_POSITIONAL else wrong
            _limit(*((0, 0) if small else (SECONDS, WALL_SECONDS)))
            try:
                _run(call.function, arguments, call.parameters)
            except BaseException as error:  # noqa: BLE001  # that is what is searched for
                text = raw_error(error)
                if text:
                    yield Failure(call.name, parameter.name, label, text)
                elif messages is not None:
                    messages[f"{call.name}({parameter.name}={label}): {type(error).__name__}: {error}"] += 1
            finally:
                _limit(0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("prefixes", nargs="*", default=[""], help="only what starts so")
    parser.add_argument("--messages", action="store_true", help="print vkjit's messages, too")
    parser.add_argument("--device", default="interpreter")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGPROF, _alarm)
    warnings.simplefilter("ignore")
    limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    gc.freeze()  # the errors of failed allocations list arrays, which takes a collection
    failures, count, messages = 0, 0, Counter[str]()
    with vk.use_device(options.device):
        for call in calls(tuple(options.prefixes)):
            count += 1
            if not call.known:
                print(f"{call.name}: no valid arguments are known: add some to _ARGUMENTS", flush=True)
            for failure in probe(call, messages):
                failures += 1
                print(failure, flush=True)
    if options.messages:
        print(*messages, sep="\n")
    print(f"{count} callables, {failures} raw errors")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
