"""Model configurations: describe a module tree by its classes and constructor arguments in JSON types, and rebuild it.

A configuration is a dictionary as read by `json.loads`. It names only classes of `vk.nn` or those passed by the caller;
nothing in it is evaluated or imported. `to_config` rejects a model if its configuration would build a different one.

Throughout this file, `path` is the dotted path of a module or value in the model, used in error messages and names.
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
"""Keys of an encoded module: its class name, its arguments by name, and its positional arguments (*args) as a list."""
_TUPLE, _ITEMS, _TYPE, _FUNCTION, _NUMBER = "$tuple", "$items", "$type", "$function", "$number"
_TENSOR, _PARAMETER = "$tensor", "$parameter"
# Values without a JSON form are dictionaries of one such key: {"$tuple": [1, 2]}, {"$type": "f32"}, {"$number": "inf"},
# {"$items": [[key, value], ...]} (see _encoded_mapping), {"$tensor": {"shape": ..., "dtype": ...}}.
_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MAX_DIFFERENCES = 20
"""Number of differences that an error message of `to_config` lists."""
Classes = Mapping[str, type[Module]]


def to_config(model: Module) -> dict[str, Any]:
    """Return the structure of a model, without values, as JSON types: `json.dumps(nn.to_config(model))`.

    The configuration has each module's class and constructor arguments (`Module.constructor_arguments()`), the names of
    frozen parameters, and the names of shared tensors. Hooks and the training mode aren't included.

    Raises ArgumentError, with the module's path, if an argument can't be encoded, or if a model built from the
    configuration would differ. Arguments may be numbers, strings, lists, dictionaries, element types, functions of
    `nn.functional`, modules, and parameters or persistent buffers of the module.
    """
    classes = _classes_in(model)
    config: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": _encoded_module(model, "model")}
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    shared = _shared(model)
    if frozen:
        config["frozen"] = frozen
    if shared:
        config["shared"] = shared
    # build the model again, without values, to check that nothing is missing from the configuration
    try:
        rebuilt = from_config(config, classes=classes, device="meta")
    except VkjitError as error:
        raise ArgumentError(
            f"no model can be built from the configuration of this {type(model).__name__}: {error}"
        ) from error
    differences = list(_differences(model, rebuilt))
    if differences:
        raise ArgumentError(
            f"a model built from the configuration of this {type(model).__name__} would differ:\n  "
            + "\n  ".join(differences[:_MAX_DIFFERENCES])
            + "\nchanges after construction are kept only if constructor_arguments() returns them"
        )
    return config


def from_config(config: Mapping[str, Any], *, classes: Classes | None = None, device: Any = None) -> Any:
    """Build the model of a configuration on a device, with newly initialized values.

    classes: the caller's own module classes by name. device: None is the default device; on "meta", the model has no
    values. Raises ArgumentError, with the path, for malformed configurations, classes that are neither in `vk.nn` nor
    in `classes`, and arguments that a class doesn't accept.
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
    for name in _checked_names(config.get("frozen", []), "frozen"):
        model.get_parameter(name).requires_grad_(False)
    return model


# -- encoding


def _classes_in(model: Module) -> dict[str, type[Module]]:
    """Return the classes of a model's modules that aren't in `vk.nn`, by name.

    Raises ArgumentError if two classes have the same name.
    """
    classes: dict[str, type[Module]] = {}
    for name, module in model.named_modules():
        cls = type(module)
        if _built_in(cls.__name__) is cls:
            continue
        # the name is taken by a class of `vk.nn`, or by another class in the model
        if _built_in(cls.__name__) is not None or classes.setdefault(cls.__name__, cls) is not cls:
            raise ArgumentError(
                f"{name or 'the model'}: there are two classes called {cls.__name__}; rename one of them"
            )
    return classes


def _encoded_module(module: Module, path: str) -> dict[str, Any]:
    """Encode a module as its class name, its named constructor arguments and its positional ones."""
    by_name = module.constructor_arguments()
    positional = by_name.pop("*", ())
    encoded: dict[str, Any] = {_CLASS: type(module).__name__}
    arguments = {name: _encoded(value, f"{path}.{name}", module) for name, value in by_name.items()}
    if arguments:
        encoded[_ARGUMENTS] = arguments
    if positional:
        encoded[_REST] = [_encoded(v, f"{path}.{i}", module) for i, v in enumerate(positional)]
    return encoded


def _encoded(value: Any, path: str, owner: Module) -> Any:
    """Encode a constructor argument of the module `owner` as a JSON value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NUMBER: str(value)}
    if isinstance(value, Module):
        return _encoded_module(value, path)
    if isinstance(value, DType):
        return {_TYPE: value.name}
    if isinstance(value, Tensor):
        return _encoded_tensor(value, path, owner)
    if isinstance(value, (list, tuple)):
        items = [_encoded(v, f"{path}.{i}", owner) for i, v in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return _encoded_mapping(value, path, owner)
    name = getattr(value, "__name__", None)
    if name in functional.__all__ and getattr(functional, name) is value:
        return {_FUNCTION: name}
    raise ArgumentError(
        f"{path}: a configuration can't hold a {type(value).__name__}; expected numbers, strings, lists, dictionaries, types, "
        "functions of vk.nn.functional, modules"
    )


def _encoded_tensor(value: Tensor, path: str, owner: Module) -> Any:
    """Encode a tensor by shape and type.

    Its values are saved in the state dict instead, so it must be a parameter or persistent buffer of `owner`.
    """
    kept = [*owner._parameters.values(), *(b for n, b in owner._buffers.items() if n not in owner._non_persistent)]
    if not any(t is value for t in kept):
        raise ArgumentError(
            f"{path}: a tensor that is no parameter or persistent buffer of its module isn't saved by its state dict"
        )
    key = _PARAMETER if isinstance(value, Parameter) else _TENSOR
    return {key: {"shape": list(value.shape), "dtype": value.dtype.name}}


def _encoded_mapping(value: Mapping[Any, Any], path: str, owner: Module) -> dict[str, Any]:
    """Encode a dictionary as a JSON object.

    If one of its keys could be mistaken for a key of the format, encode it as a list of pairs ("$items").
    """
    for key in value:
        if not isinstance(key, str):
            raise ArgumentError(f"{path}: keys are strings, found {key!r}")
    encoded = {key: _encoded(item, f"{path}.{key}", owner) for key, item in value.items()}
    unambiguous = not any(key.startswith("$") or key == _CLASS for key in encoded)
    return encoded if unambiguous else {_ITEMS: [list(item) for item in encoded.items()]}


def _members(model: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers with their dotted names. A shared tensor appears under each of its names."""
    for path, owner in model.named_modules(remove_duplicate=False):
        owner._flush_cached_buffers()
        for registry in (owner._parameters, owner._buffers):
            for name, tensor in registry.items():
                if tensor is not None:
                    yield (f"{path}.{name}" if path else name), tensor


def _shared(model: Module) -> list[list[str]]:
    """Return the names of shared tensors: one list of names per tensor that has several."""
    names: dict[int, list[str]] = {}
    for name, tensor in _members(model):
        names.setdefault(id(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _differences(model: Module, rebuilt: Module) -> Iterator[str]:
    """Yield descriptions of the differences between a model and the one rebuilt from its configuration.

    Compares the classes and plain attributes of modules, and the shapes and types of parameters and buffers.
    """
    modules, rebuilt_modules = (dict(m.named_modules(remove_duplicate=False)) for m in (model, rebuilt))
    for name in sorted({*modules, *rebuilt_modules}):
        original, recreated = modules.get(name), rebuilt_modules.get(name)
        if type(original) is not type(recreated):
            yield f"{name or 'the model'} is a {type(original).__name__}, not a {type(recreated).__name__}"
        elif original is not None and recreated is not None:
            yield from (f"{name}.{part}" if name else part for part in _attribute_differences(original, recreated))
    members, rebuilt_members = ({n: (t.shape, t.dtype.name) for n, t in _members(m)} for m in (model, rebuilt))
    for name in sorted({*members, *rebuilt_members}):
        if members.get(name) != rebuilt_members.get(name):
            yield f"{name} is {members.get(name, 'not there')}, not {rebuilt_members.get(name, 'there')}"


def _attribute_differences(module: Module, rebuilt: Module) -> Iterator[str]:
    """Yield descriptions of the attributes of plain types (numbers, strings, lists, ...) whose values differ.

    Private attributes and `training` aren't compared.
    """
    for name in sorted({*vars(module), *vars(rebuilt)} - {"training"}):
        if name.startswith("_"):
            continue
        value, rebuilt_value = (vars(m).get(name) for m in (module, rebuilt))
        plain = (bool, int, float, str, tuple, list, dict, type(None))
        # compared as text: 1, 1.0 and True differ, and NaN equals itself
        if isinstance(value, plain) and isinstance(rebuilt_value, plain) and repr(value) != repr(rebuilt_value):
            yield f"{name} is {value!r}, not {rebuilt_value!r}"


# -- decoding


def _built_in(name: str) -> Any:
    """Return the module class called `name` in `vk.nn`, or None."""
    from .. import nn

    member = getattr(nn, name, None) if name in nn.__all__ else None
    return member if isinstance(member, type) and issubclass(member, Module) else None


def _class_named(name: Any, path: str, classes: Classes) -> type[Module]:
    """Return the module class called `name`: one of the caller's classes, or else one of `vk.nn`."""
    cls = (classes.get(name) or _built_in(name)) if isinstance(name, str) else None
    if cls is None:
        raise ArgumentError(f"{path}: vk.nn has no module {name!r}: pass it as classes={{{name!r}: ...}}")
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise ArgumentError(f"{path}: classes[{name!r}] is no subclass of vk.nn.Module")
    return cls


def _decoded_module(config: Mapping[str, Any], path: str, classes: Classes) -> Module:
    """Build a module encoded by `_encoded_module`."""
    unknown = sorted(set(config) - {_CLASS, _ARGUMENTS, _REST})
    arguments, positional = config.get(_ARGUMENTS, {}), config.get(_REST, [])
    if unknown or not isinstance(arguments, Mapping) or not isinstance(positional, list):
        raise ArgumentError(
            f'{path}: a module has "class", "arguments" (a dictionary) and "rest" (a list); found {unknown}'
        )
    cls = _class_named(config[_CLASS], path, classes)
    by_name = {name: _decoded(value, f"{path}.{name}", classes) for name, value in arguments.items()}
    positional_values = [_decoded(value, f"{path}.{i}", classes) for i, value in enumerate(positional)]
    try:
        inspect.signature(cls.__init__).bind(None, *positional_values, **by_name)  # None stands for `self`
        return cls(*positional_values, **by_name)
    except (TypeError, ValueError, VkjitError) as error:
        raise ArgumentError(f"{path}: {cls.__name__} can't be made of these arguments: {error}") from error


def _decoded(value: Any, path: str, classes: Classes) -> Any:
    """Decode a value encoded by `_encoded`."""
    if isinstance(value, list):
        return [_decoded(v, f"{path}.{i}", classes) for i, v in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if _CLASS in value:
        return _decoded_module(value, path, classes)
    special_keys = [key for key in value if isinstance(key, str) and key.startswith("$")]
    if not special_keys:
        return {key: _decoded(v, f"{path}.{key}", classes) for key, v in value.items()}
    reader = _READERS.get(special_keys[0])
    if reader is None or len(value) != 1:
        raise ArgumentError(f"{path}: {value!r} means nothing; known are {', '.join(_READERS)}, each alone")
    if special_keys[0] == _TUPLE:
        return tuple(_decoded(v, f"{path}.{i}", classes) for i, v in enumerate(_checked_list(value[_TUPLE], path)))
    if special_keys[0] == _ITEMS:
        pairs = [_checked_entry(pair, path) for pair in _checked_list(value[_ITEMS], path)]
        return {key: _decoded(v, f"{path}.{key}", classes) for key, v in pairs}
    return reader(value[special_keys[0]], path)


def _checked_list(value: Any, path: str) -> list[Any]:
    """Return an encoded value after checking that it is a list."""
    if not isinstance(value, list):
        raise ArgumentError(f"{path}: expected a list, found {value!r}")
    return value


def _checked_entry(value: Any, path: str) -> tuple[str, Any]:
    """Return an encoded dictionary entry, [key, value], as a tuple."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise ArgumentError(f"{path}: expected a name and a value, found {value!r}")
    return value[0], value[1]


def _checked_names(value: Any, path: str) -> list[str]:
    """Return an encoded value after checking that it is a list of strings."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ArgumentError(f"{path}: expected a list of names, found {value!r}")
    return value


def _type_named(value: Any, path: str) -> DType:
    """Return the element type whose name is `value`."""
    if not isinstance(value, str) or value not in dtypes.by_name:
        raise ArgumentError(f"{path}: there is no element type {value!r}")
    return dtypes.by_name[value]


def _function_named(value: Any, path: str) -> Any:
    """Return the function of `vk.nn.functional` whose name is `value`."""
    if value not in functional.__all__:
        raise ArgumentError(f"{path}: vk.nn.functional has no {value!r}")
    return getattr(functional, value)


def _number_named(value: Any, path: str) -> float:
    """Return the non-finite number whose name is `value`: "inf", "-inf" or "nan"."""
    if not isinstance(value, str) or value not in _NON_FINITE:
        raise ArgumentError(f"{path}: {value!r} is no number; known are {', '.join(_NON_FINITE)}")
    return _NON_FINITE[value]


def _tensor_like(value: Any, path: str) -> Tensor:
    """Return a tensor of zeros with the shape and type of an encoded tensor."""
    shape = value.get("shape") if isinstance(value, Mapping) else None
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ArgumentError(f"{path}: a tensor has a shape, a list of sizes, found {value!r}")
    return creation.zeros(tuple(shape), dtype=_type_named(value.get("dtype"), path))


# The function that decodes the value of each special key. `_decoded` handles _TUPLE and _ITEMS itself, because their
# elements must be decoded as well; the entries here only mark the keys as valid.
_READERS: dict[str, Callable[[Any, str], Any]] = {
    _TUPLE: _checked_list,
    _ITEMS: _checked_list,
    _TYPE: _type_named,
    _FUNCTION: _function_named,
    _NUMBER: _number_named,
    _TENSOR: _tensor_like,
    _PARAMETER: lambda value, path: Parameter(_tensor_like(value, path)),
}


def _share(model: Module, groups: Any) -> None:
    """Restore shared tensors: assign the first tensor of each group of names (see `_shared`) to the other names."""
    if not isinstance(groups, list):
        raise ArgumentError(f"shared: expected lists of names, found {groups!r}")
    members = dict(_members(model))
    for group in groups:
        names = _checked_names(group, "shared")
        lost = [name for name in names if name not in members]
        if lost or len({(members[n].shape, members[n].dtype.name, type(members[n])) for n in names}) != 1:
            raise ArgumentError(
                f"shared: {names} aren't tensors of one kind, shape and type of this model; not there: {lost}"
            )
        for name in names[1:]:
            path, _, part = name.rpartition(".")
            setattr(model.get_submodule(path), part, members[names[0]])
