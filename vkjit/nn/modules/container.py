"""Containers of modules or parameters, ordered or by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from vkjit.errors import ArgumentError, shown
from vkjit.tensor.argument_views import own_result

from ..parameter import Parameter
from .module import Module

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential", "check_layer_count"]


MAX_LAYERS = 1 << 12
"""The largest number of layers that a stack is built with: each takes memory and time, whatever its size."""


def check_layer_count(count: int, owner: str) -> None:
    """Raise ArgumentError for a number of layers that would never be built. `owner` (a class) is for the message."""
    if count > MAX_LAYERS:
        raise ArgumentError(f"{owner} has num_layers of at most {MAX_LAYERS}, found {shown(count)}: stack several")


def _checked_index(index: int, length: int, owner: str) -> int:
    """Return `index` as a nonnegative index into `length` modules; negative indices count from the end.

    Raises IndexError if it is out of range. `owner` (the container's class) is for the message.
    """
    if not -length <= index < length:
        raise IndexError(f"{owner}: index {index} is out of range for {length} modules")
    return index % length


def _replace_all(owner: Module, modules: list[Any]) -> None:
    """Replace the modules of the container `owner` by new ones, named by their indices."""
    for module in modules:
        if not isinstance(module, Module):
            raise ArgumentError(f"a child of a module is a vk.nn.Module, found {type(module).__name__}")
    for name in list(owner._modules):
        delattr(owner, name)
    for position, module in enumerate(modules):
        owner.add_module(str(position), module)


_Listed = TypeVar("_Listed", bound="_List")
"""Type of `self`, so that methods that return it keep the subclass."""


class _List(Module):
    """Base class of ordered containers. Their modules are named "0", "1", ... unless names are given."""

    def append(self: _Listed, module: Module) -> _Listed:
        """Append a module."""
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self: _Listed, modules: Iterable[Module]) -> _Listed:
        """Append several modules."""
        for module in [*modules] if isinstance(modules, _List) else modules:  # it may be this one
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove and return a module; the remaining modules are renumbered if their names were consecutive numbers."""
        module = list(self._modules.values())[_checked_index(index, len(self._modules), type(self).__name__)]
        del self[index]
        return module

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)
        has_number_names = names == [str(i) for i in range(len(names))]
        if isinstance(index, slice):
            removed = names[index]
        else:
            removed = [names[_checked_index(index, len(names), type(self).__name__)]]
        for name in removed:
            delattr(self, name)
        if has_number_names:  # close the gap in the numbers
            _replace_all(self, list(self._modules.values()))


class Sequential(_List):
    """Modules called in sequence, each on the output of the previous one.

    Constructed from modules, or from one mapping of names to modules.
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = modules[0].items() if len(modules) == 1 and isinstance(modules[0], Mapping) else enumerate(modules)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, x: Any) -> Any:
        """Call the first module with x, and each other module with the previous output; return the last output."""
        for module in self._modules.values():
            assert module is not None
            x = module(x)
        return own_result(x)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the modules as positional arguments (key "*"): the modules themselves, or one dictionary of names to
        modules if the names aren't consecutive numbers.
        """
        if list(self._modules) == [str(i) for i in range(len(self))]:
            return {"*": tuple(self._modules.values())}
        return {"*": (dict(self._modules),)}

    def insert(self, index: int, module: Module) -> Sequential:
        """Insert a module before the module at `index`. All modules are renamed to their new indices."""
        modules = list(self)
        modules.insert(index, module)
        _replace_all(self, modules)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        # without the names, which may occur in both
        return Sequential(*self, *other)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential(dict(list(self._modules.items())[index]))
        return list(self._modules.values())[_checked_index(index, len(self), "Sequential")]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[_checked_index(index, len(self), "Sequential")], module)


class ModuleList(_List):
    """List of modules. It has no `forward`: the module that owns it calls the elements."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the modules."""
        return {"modules": list(self._modules.values())}

    def insert(self, index: int, module: Module) -> None:
        """Insert a module before the module at `index`. All modules are renamed to their new indices."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        _replace_all(self, modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ModuleList(m for m in list(self._modules.values())[index] if m is not None)
        return self._modules[str(_checked_index(index, len(self), "ModuleList"))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, str(_checked_index(index, len(self), "ModuleList")), module)


class ModuleDict(Module):
    """Dictionary of modules. It has no `forward`: the module that owns it calls the entries."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the modules by name."""
        return {"modules": dict(self._modules)}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Any:
        if name not in self._modules:
            raise KeyError(f"ModuleDict has no module {name!r}, only {sorted(self._modules)}")
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        if name in self._modules:
            setattr(self, name, module)
        else:
            self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def keys(self) -> Any:
        """Return the names."""
        return self._modules.keys()

    def values(self) -> Any:
        """Return the modules."""
        return self._modules.values()

    def items(self) -> Any:
        """Return (name, module) pairs."""
        return self._modules.items()


class ParameterList(Module):
    """List of parameters."""

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        super().__init__()
        for parameter in parameters:
            self.append(parameter)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the parameters."""
        return {"parameters": list(self._parameters.values())}

    def append(self, parameter: Parameter) -> ParameterList:
        """Append a parameter."""
        if not isinstance(parameter, Parameter):
            raise ArgumentError(f"a ParameterList holds vk.nn.Parameter, found {type(parameter).__name__}")
        self.register_parameter(str(len(self)), parameter)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return self._parameters[str(_checked_index(index, len(self), "ParameterList"))]


class ParameterDict(Module):
    """Dictionary of parameters."""

    def __init__(self, parameters: Mapping[str, Parameter] | None = None) -> None:
        super().__init__()
        for name, parameter in (parameters or {}).items():
            self[name] = parameter

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"parameters": dict(self._parameters)}

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __getitem__(self, name: str) -> Any:
        if name not in self._parameters:
            raise KeyError(f"ParameterDict has no parameter {name!r}, only {sorted(self._parameters)}")
        return self._parameters[name]

    def __setitem__(self, name: str, parameter: Parameter) -> None:
        if not isinstance(parameter, Parameter):
            raise ArgumentError(f"a ParameterDict holds vk.nn.Parameter, found {type(parameter).__name__}")
        if name in self._parameters:
            setattr(self, name, parameter)
        else:
            self.register_parameter(name, parameter)

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def keys(self) -> Any:
        """Return the names."""
        return self._parameters.keys()

    def values(self) -> Any:
        """Return the parameters."""
        return self._parameters.values()

    def items(self) -> Any:
        """Return (name, parameter) pairs."""
        return self._parameters.items()
