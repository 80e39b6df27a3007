"""A pickler that stores functions that can't be found by name by value, as cloudpickle does, and what loads them."""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
import sys
from types import CellType, FunctionType, ModuleType
from typing import Any, TypeVar


def dumps(value: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, TypeVar):
            return TypeVar, (value.__name__,)
        if isinstance(value, FunctionType) and not _is_found(value):
            names = {n for code in _codes(value.__code__) for n in code.co_names}
            used = {name: v for name, v in value.__globals__.items() if name in names}
            cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
            state = (value.__defaults__, value.__kwdefaults__, value.__dict__)
            code = marshal.dumps(value.__code__)
            return _function, (code, used, value.__module__, value.__name__, value.__qualname__, cells, state)
        return NotImplemented


def _codes(code: Any) -> list[Any]:
    return [code, *(c for part in code.co_consts if hasattr(part, "co_names") for c in _codes(part))]


def _is_found(function: FunctionType) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _function(
    code: bytes, used: dict[str, Any], module: str, name: str, qualname: str, cells: tuple[Any, ...], state: Any
) -> FunctionType:
    made = FunctionType(marshal.loads(code), {**used, "__name__": module}, name, state[0], tuple(map(CellType, cells)))  # noqa: S302
    made.__module__, made.__qualname__, made.__kwdefaults__ = module, qualname, state[1]
    made.__dict__.update(state[2])
    return made
