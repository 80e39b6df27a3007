"""Model configurations: serialize a module tree and its constructor arguments to JSON types, and build models from
them.

A configuration is a dictionary as read by `json.loads`. It names only classes of `vk.nn` or those passed by the caller;
nothing in it is evaluated or imported. `to_config` refuses a module if its configuration would build a different one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import dtypes
from ..backends.selection import device as open_device, use_device
from ..dtypes import DType
from ..errors import ArgumentError, VkjitError
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from . import functional
from .modules.module import Module
from .parameter import Parameter

__all__ = ["from_config", "to_config"]

FORMAT, VERSION = "vkjit-module", 1
_CLASS, _ARGUMENTS, _REST = "class", "arguments", "rest"
_TUPLE, _ITEMS, _TYPE, _FUNCTION, _NUMBER = "$tuple", "$items", "$type", "$function", "$number"
_TENSOR, _PARAMETER = "$tensor", "$parameter"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
Classes = Mapping[str, type[Module]]


def to_config(model: Module) -> dict[str, Any]:
    """Return the structure of a model, without values, as JSON types: `json.dumps(nn.to_config(model))`.

    For each module the configuration has its class and its constructor's arguments (`constructor_arguments()`), and for
    the model the frozen and the shared parameters. Hooks and the training mode aren't included.

    Raises ArgumentError, with the module's path, if an argument is not a number, string, list, dictionary, type,
    function of `nn.functional`, module, or tensor kept by the module; and if a model built from the configuration would
    differ.
    """
    classes = _classes_in(model)
    config: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": _encoded_module(model, "model")}
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    shared = _shared(model)
    config.update({"frozen": frozen} if frozen else {}, **({"shared": shared} if shared else {}))
    try:
        rebuilt = from_config(config, classes=classes, device="meta")
    except VkjitError as error:
        raise ArgumentError(
            f"the configuration of {type(model).__name__} doesn't make a model again: {error}"
        ) from error
    differences = list(_differences(model, rebuilt))
    if differences:
        raise ArgumentError(
            f"a configuration can't tell everything about this {type(model).__name__}; what it would make differs:\n  "
            + "\n  ".join(differences[:20])
            + "\nthe module's constructor_arguments() has to give what it was changed to"
        )
    return config


def from_config(config: Mapping[str, Any], *, classes: Classes | None = None, device: Any = None) -> Any:
    """Build the model of a configuration, with fresh values, on a device (default: the default device; "meta": without
    values).

    classes maps names to the caller's own modules. Raises ArgumentError, with the path, for malformed configurations,
    classes that are neither in `vk.nn` nor in `classes`, and arguments that a class doesn't accept.
    """
    if not isinstance(config, Mapping) or config.get("format") != FORMAT:
        raise ArgumentError(f'this is no configuration of a model: expected a dictionary with "format": "{FORMAT}"')
    if config.get("version") != VERSION:
        raise ArgumentError(f"the configuration has version {config.get('version')!r}, expected {VERSION}")
    unknown = sorted(set(config) - {"format", "version", "model", "frozen", "shared"})
    if unknown or "model" not in config:
        raise ArgumentError(
            f'a configuration has "model", "frozen" and "shared"; found besides: {unknown or "no model"}'
        )
    with use_device(open_device(device)):
        model = _decoded(config["model"], "model", classes or {})
        if not isinstance(model, Module):
            raise ArgumentError(
                f'model: expected a module, {{"class": ..., "arguments": ...}}, found {config["model"]!r}'
            )
    _share(model, config.get("shared", []))
    for name in _names(config.get("frozen", []), "frozen"):
        model.get_parameter(name).requires_grad_(False)
    return model


# -- encoding


def _classes_in(model: Module) -> dict[str, type[Module]]:
    """Return the classes of a model that aren't in `vk.nn`, by name."""
    classes: dict[str, type[Module]] = {}
    for name, module in model.named_modules():
        kind = type(module)
        if _built_in(kind.__name__) is kind:
            continue
        if _built_in(kind.__name__) is not None or classes.setdefault(kind.__name__, kind) is not kind:
            raise ArgumentError(
                f"{name or 'the model'}: there are two classes called {kind.__name__}; rename one of them"
            )
    return classes


def _encoded_module(module: Module, place: str) -> dict[str, Any]:
    given = module.constructor_arguments()
    positional = given.pop("*", ())
    encoded: dict[str, Any] = {_CLASS: type(module).__name__}
    arguments = {name: _encoded(value, f"{place}.{name}", module) for name, value in given.items()}
    encoded.update({_ARGUMENTS: arguments} if arguments else {})
    encoded.update(
        {_REST: [_encoded(v, f"{place}.{i}", module) for i, v in enumerate(positional)]} if positional else {}
    )
    return encoded


def _encoded(value: Any, place: str, owner: Module) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NUMBER: str(value)}
    if isinstance(value, Module):
        return _encoded_module(value, place)
    if isinstance(value, DType):
        return {_TYPE: value.name}
    if isinstance(value, Tensor):
        return _encoded_tensor(value, place, owner)
    if isinstance(value, (list, tuple)):
        items = [_encoded(v, f"{place}.{i}", owner) for i, v in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return _encoded_mapping(value, place, owner)
    name = getattr(value, "__name__", None)
    if name in functional.__all__ and getattr(functional, name) is value:
        return {_FUNCTION: name}
    raise ArgumentError(
        f"{place}: a configuration can't hold a {type(value).__name__}; expected numbers, strings, lists, dictionaries, types, "
        "functions of vk.nn.functional, modules"
    )


def _encoded_tensor(value: Tensor, place: str, owner: Module) -> Any:
    """Encode shape and type. The values belong to the state, so the tensor must be part of it."""
    kept = [*owner._parameters.values(), *(b for n, b in owner._buffers.items() if n not in owner._non_persistent)]
    if not any(t is value for t in kept):
        raise ArgumentError(
            f"{place}: a tensor that is no parameter or persistent buffer of its module has no place to be"
        )
    return {
        _PARAMETER if isinstance(value, Parameter) else _TENSOR: {"shape": list(value.shape), "dtype": value.dtype.name}
    }


def _encoded_mapping(value: Mapping[Any, Any], place: str, owner: Module) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise ArgumentError(f"{place}: keys are strings, found {key!r}")
    encoded = {key: _encoded(item, f"{place}.{key}", owner) for key, item in value.items()}
    unmistakable = not any(key.startswith("$") or key == _CLASS for key in encoded)
    return encoded if unmistakable else {_ITEMS: [list(item) for item in encoded.items()]}


def _members(model: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers; shared ones under each of their names."""
    for place, owner in model.named_modules(remove_duplicate=False):
        owner._flush_cached_buffers()
        for registry in (owner._parameters, owner._buffers):
            for name, tensor in registry.items():
                if tensor is not None:
                    yield (f"{place}.{name}" if place else name), tensor


def _shared(model: Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, tensor in _members(model):
        names.setdefault(id(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _differences(model: Module, made: Module) -> Iterator[str]:
    """Yield the differences between two models as text."""
    ours, theirs = (dict(m.named_modules(remove_duplicate=False)) for m in (model, made))
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name), theirs.get(name)
        if type(one) is not type(other):
            yield f"{name or 'the model'} is a {type(one).__name__}, not a {type(other).__name__}"
        elif one is not None and other is not None:
            yield from (f"{name}.{part}" if name else part for part in _unlike(one, other))
    mine, fresh = ({n: (t.shape, t.dtype.name) for n, t in _members(m)} for m in (model, made))
    for name in sorted({*mine, *fresh}):
        if mine.get(name) != fresh.get(name):
            yield f"{name} is {mine.get(name, 'not there')}, not {fresh.get(name, 'there')}"


def _unlike(one: Module, other: Module) -> Iterator[str]:
    """Yield the plain attributes that differ."""
    for name in sorted({*vars(one), *vars(other)} - {"training"}):
        if name.startswith("_"):
            continue
        here, there = (vars(m).get(name) for m in (one, other))
        plain = (bool, int, float, str, tuple, list, dict, type(None))
        if isinstance(here, plain) and isinstance(there, plain) and repr(here) != repr(there):
            yield f"{name} is {here!r}, not {there!r}"


# -- decoding


def _built_in(name: str) -> Any:
    from .. import nn

    member = getattr(nn, name, None) if name in nn.__all__ else None
    return member if isinstance(member, type) and issubclass(member, Module) else None


def _class_named(name: Any, place: str, classes: Classes) -> type[Module]:
    cls = classes.get(name) or _built_in(name) if isinstance(name, str) else None
    if cls is None:
        raise ArgumentError(f"{place}: vk.nn has no module {name!r}: pass it as classes={{{name!r}: ...}}")
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise ArgumentError(f"{place}: classes[{name!r}] is no subclass of vk.nn.Module")
    return cls


def _decoded_module(config: Mapping[str, Any], place: str, classes: Classes) -> Module:
    unknown = sorted(set(config) - {_CLASS, _ARGUMENTS, _REST})
    arguments, positional = config.get(_ARGUMENTS, {}), config.get(_REST, [])
    if unknown or not isinstance(arguments, Mapping) or not isinstance(positional, list):
        raise ArgumentError(
            f'{place}: a module has "class", "arguments" (a dictionary) and "rest" (a list); found {unknown}'
        )
    kind = _class_named(config[_CLASS], place, classes)
    given = {name: _decoded(value, f"{place}.{name}", classes) for name, value in arguments.items()}
    more = [_decoded(value, f"{place}.{i}", classes) for i, value in enumerate(positional)]
    try:
        inspect.signature(kind.__init__).bind(None, *more, **given)
        return kind(*more, **given)
    except (TypeError, ValueError, VkjitError) as error:
        raise ArgumentError(f"{place}: {kind.__name__} can't be made of these arguments: {error}") from error


def _decoded(value: Any, place: str, classes: Classes) -> Any:
    if isinstance(value, list):
        return [_decoded(v, f"{place}.{i}", classes) for i, v in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if _CLASS in value:
        return _decoded_module(value, place, classes)
    marks = [key for key in value if isinstance(key, str) and key.startswith("$")]
    if not marks:
        return {key: _decoded(v, f"{place}.{key}", classes) for key, v in value.items()}
    read = _READERS.get(marks[0])
    if read is None or len(value) != 1:
        raise ArgumentError(f"{place}: {value!r} means nothing; known are {', '.join(_READERS)}, each alone")
    if marks[0] == _TUPLE:
        return tuple(_decoded(v, f"{place}.{i}", classes) for i, v in enumerate(_listed(value[_TUPLE], place)))
    if marks[0] == _ITEMS:
        pairs = [_names_value(pair, place) for pair in _listed(value[_ITEMS], place)]
        return {key: _decoded(v, f"{place}.{key}", classes) for key, v in pairs}
    return read(value[marks[0]], place)


def _listed(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ArgumentError(f"{place}: expected a list, found {value!r}")
    return value


def _names_value(value: Any, place: str) -> tuple[str, Any]:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise ArgumentError(f"{place}: expected a name and a value, found {value!r}")
    return value[0], value[1]


def _names(value: Any, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ArgumentError(f"{place}: expected a list of names, found {value!r}")
    return value


def _type_named(value: Any, place: str) -> DType:
    if not isinstance(value, str) or value not in dtypes.by_name:
        raise ArgumentError(f"{place}: there is no element type {value!r}")
    return dtypes.by_name[value]


def _function_named(value: Any, place: str) -> Any:
    if value not in functional.__all__:
        raise ArgumentError(f"{place}: vk.nn.functional has no {value!r}")
    return getattr(functional, value)


def _number_named(value: Any, place: str) -> float:
    if not isinstance(value, str) or value not in _SPECIAL:
        raise ArgumentError(f"{place}: {value!r} is no number; known are {', '.join(_SPECIAL)}")
    return _SPECIAL[value]


def _tensor_like(value: Any, place: str) -> Tensor:
    shape = value.get("shape") if isinstance(value, Mapping) else None
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ArgumentError(f"{place}: a tensor has a shape, a list of sizes, found {value!r}")
    return creation.zeros(tuple(shape), dtype=_type_named(value.get("dtype"), place))


_READERS: dict[str, Callable[[Any, str], Any]] = {
    _TUPLE: _listed,
    _ITEMS: _listed,
    _TYPE: _type_named,
    _FUNCTION: _function_named,
    _NUMBER: _number_named,
    _TENSOR: _tensor_like,
    _PARAMETER: lambda value, place: Parameter(_tensor_like(value, place)),
}


def _share(model: Module, groups: Any) -> None:
    """Assign the first tensor of each group to all names of the group."""
    if not isinstance(groups, list):
        raise ArgumentError(f"shared: expected lists of names, found {groups!r}")
    members = dict(_members(model))
    for group in groups:
        names = _names(group, "shared")
        lost = [name for name in names if name not in members]
        if lost or len({(members[n].shape, members[n].dtype.name, type(members[n])) for n in names}) != 1:
            raise ArgumentError(
                f"shared: {names} aren't tensors of one kind, shape and type of this model; not there: {lost}"
            )
        for name in names[1:]:
            place, _, part = name.rpartition(".")
            setattr(model.get_submodule(place), part, members[names[0]])
