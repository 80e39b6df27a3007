"""Random graphs of tensor operations as plain data that serializes to JSON and runs in either library.

A `Graph` has leaves with shapes, layouts and values, then nodes that apply operations to earlier values. Shapes come
from running the graph in PyTorch while it is generated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tests.parity.graph_fuzz.table import TABLE

__all__ = ["Graph", "Leaf", "Node", "drawn", "from_text", "run"]

MAX_ELEMENTS = 3000
UNIT = 2.0**-24


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input of kind f, i or b; `layout` is its memory layout: "plain", "transposed", "stepped" or "offset".

    `values` are set for leaves that replace a removed part of a graph.
    """

    kind: str
    shape: tuple[int, ...]
    layout: str
    seed: int
    values: tuple[float, ...] | None = None

    def array(self) -> Any:
        """Return its values in C order."""
        if self.values is not None:
            dtype = {"f": np.float32, "i": np.int64, "b": np.bool_}[self.kind]
            return np.array(self.values, dtype).reshape(self.shape)
        rng = np.random.default_rng(self.seed)
        if self.kind == "f":
            made = rng.standard_normal(self.shape).astype(np.float32) * 2
            return np.asarray(np.where(rng.random(self.shape) < 0.1, np.rint(made), made), np.float32)
        return rng.integers(-9, 10, self.shape) if self.kind == "i" else rng.random(self.shape) < 0.5


@dataclass(frozen=True, slots=True)
class Node:
    """An operation: its name in the table, the numbers of its inputs, its parameters."""

    name: str
    inputs: tuple[int, ...]
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """Leaves, numbered from 0, followed by nodes. Unused nodes are the results."""

    leaves: tuple[Leaf, ...]
    nodes: tuple[Node, ...] = field(default=())

    def results(self) -> list[int]:
        """Return the numbers of the unused nodes."""
        used = {i for node in self.nodes for i in node.inputs}
        first = len(self.leaves)
        return [n for n in range(first, first + len(self.nodes)) if n not in used]

    def to_text(self) -> str:
        """Serialize to one line of JSON."""
        return json.dumps({"leaves": [asdict(x) for x in self.leaves], "nodes": [asdict(x) for x in self.nodes]})

    def __str__(self) -> str:
        lines = [
            f"  v{i} = {leaf.kind}{list(leaf.shape)} {leaf.layout}{'' if leaf.values is None else f' {_short(leaf.values)}'}"
            for i, leaf in enumerate(self.leaves)
        ]
        for i, node in enumerate(self.nodes, len(self.leaves)):
            parts = [f"v{n}" for n in node.inputs] + [repr(p) for p in node.params]
            lines.append(f"  v{i} = {node.name}({', '.join(parts)})")
        return "\n".join(lines)


def _short(values: Sequence[float]) -> str:
    return str([float(f"{v:.6g}") for v in values[:6]]) + ("..." if len(values) > 6 else "")


def from_text(text: str) -> Graph:
    """Parse a line of JSON."""
    read = json.loads(text)

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    leaves = tuple(Leaf(**{k: tuples(v) for k, v in x.items()}) for x in read["leaves"])
    return Graph(leaves, tuple(Node(**{k: tuples(v) for k, v in x.items()}) for x in read["nodes"]))


def placed(make: Callable[[Any], Any], leaf: Leaf) -> tuple[Any, Any]:
    """Return a tensor with the leaf's values and layout, and the base tensor that it is a view of."""
    values = leaf.array()
    if leaf.layout == "transposed" and values.ndim > 1:
        base = make(np.ascontiguousarray(np.swapaxes(values, 0, -1)))
        return base.transpose(0, -1), base
    if leaf.layout == "stepped" and values.ndim:
        base = make(np.repeat(values, 2, axis=-1))
        return base[..., ::2], base
    if leaf.layout == "offset" and values.ndim:
        base = make(np.concatenate([values[:1] * 0, values] if len(values) else [values, values]))
        return (base[1:] if len(values) else base), base
    base = make(values)
    return base, base


def run(
    graph: Graph, xp: Any, make: Callable[[Any], Any], after: Callable[[Any], Any] = lambda x: x
) -> tuple[list[Any], list[Any]]:
    """Return all values of the graph in the library `xp`, and the leaves' base tensors; `after` maps node values."""
    pairs = [placed(make, leaf) for leaf in graph.leaves]
    values = [view for view, _ in pairs]
    for node in graph.nodes:
        values.append(after(TABLE[node.name].call(xp, node.params, *(values[i] for i in node.inputs))))
    return values, [base for _, base in pairs]


def kind_of(value: Any) -> str:
    """Return the kind (f, i or b) of a PyTorch tensor."""
    return "f" if value.is_floating_point() else "b" if str(value.dtype) == "torch.bool" else "i"


def drawn(seed: int, size: int = 8) -> Graph:
    """Generate a graph of `size` operations."""
    import torch

    rng = random.Random(seed)
    leaves = [_leaf(rng, "f") for _ in range(rng.randint(1, 3))] + [Leaf("f", (), "plain", rng.randrange(999))]
    leaves += [_leaf(rng, rng.choice("ib")) for _ in range(rng.randint(0, 2))]
    graph = Graph(tuple(leaves))
    values = run(graph, torch, torch.tensor)[0]
    for _ in range(40 * size):
        if len(graph.nodes) == size:
            break
        made = _next(rng, graph, values)
        if made is not None:
            graph = Graph(graph.leaves, (*graph.nodes, made[0]))
            values.append(made[1])
    return graph


def _leaf(rng: random.Random, kind: str) -> Leaf:
    shape = tuple(rng.choice([1, 2, 3, 4, 5, 8, 17, 33]) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])))
    while np.prod(shape) > MAX_ELEMENTS / 4:
        shape = shape[1:]
    if shape and rng.random() < 0.04:
        shape = (*shape[:-1], 0)
    return Leaf(kind, shape, rng.choice(["plain", "plain", "transposed", "stepped", "offset"]), rng.randrange(10**6))


def _next(rng: random.Random, graph: Graph, values: list[Any]) -> tuple[Node, Any] | None:
    """Draw an operation on existing, preferably recent, values; return it and its value, or None if it is invalid."""
    import torch

    name = rng.choice(list(TABLE))
    entry, inputs = TABLE[name], []
    for letter in entry.kinds:
        fitting = [n for n, v in enumerate(values) if letter == "a" or kind_of(v) in {"n": "fi"}.get(letter, letter)]
        if not fitting:
            return None
        recent = fitting[-4:] if rng.random() < 0.7 else fitting
        inputs.append(rng.choice(recent))
    params = entry.draw(rng, [tuple(values[i].shape) for i in inputs])
    if params is None:
        return None
    try:
        made = entry.call(torch, params, *(values[i] for i in inputs))
    except (RuntimeError, IndexError, TypeError):  # PyTorch rejects it: not a valid program
        return None
    if made.numel() > MAX_ELEMENTS or (made.is_floating_point() and not torch.isfinite(made).all()):
        return None
    return Node(name, tuple(inputs), params), made
