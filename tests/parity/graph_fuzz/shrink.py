"""Shrink a failing graph.

Removes unneeded nodes, replaces parts by their values or by one of their inputs, and simplifies leaves, as long as the
graph still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.parity.graph_fuzz.program import Graph, Leaf, Node, kind_of, run

__all__ = ["shrunk"]


def shrunk(graph: Graph, fails: Callable[[Graph], bool], most: int = 300) -> Graph:
    """Return the smallest failing graph found in `most` attempts."""
    attempts, again = 0, True
    while again and attempts < most:
        again = False
        for smaller in _smaller(graph):
            attempts += 1
            if attempts > most:
                break
            if fails(smaller):
                graph, again = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    first = len(graph.leaves)
    for n in graph.results():
        if len(graph.nodes) > 1:
            yield _without(graph, {n})
    for n in range(first + len(graph.nodes) - 1, first - 1, -1):
        cut = _as_leaf(graph, n)
        if cut is not None:
            yield cut
        for source in graph.nodes[n - first].inputs:
            yield _without(_rewired(graph, n, source), {n})
    for n, leaf in enumerate(graph.leaves):
        for simpler in (replace(leaf, layout="plain"), replace(leaf, values=None, seed=1)):
            if simpler != leaf and (leaf.layout != "plain" or leaf.values is not None):
                yield replace(graph, leaves=(*graph.leaves[:n], simpler, *graph.leaves[n + 1 :]))


def _rewired(graph: Graph, old: int, new: int) -> Graph:
    """Return the graph with every use of one value replaced by another."""
    nodes = [replace(x, inputs=tuple(new if i == old else i for i in x.inputs)) for x in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def _as_leaf(graph: Graph, number: int) -> Graph | None:
    """Return the graph with a node replaced by a leaf that holds its value; None if the node is unused."""
    import torch

    if number in graph.results():
        return None
    value = run(graph, torch, torch.tensor)[0][number]
    leaf = Leaf(kind_of(value), tuple(value.shape), "plain", 1, tuple(value.reshape(-1).tolist()))
    place = len(graph.leaves)
    nodes = [replace(x, inputs=tuple(i + (i >= place) for i in x.inputs)) for x in graph.nodes]
    widened = Graph((*graph.leaves, leaf), tuple(nodes))
    return _without(_rewired(widened, number + 1, place), {number + 1})


def _without(graph: Graph, gone: set[int]) -> Graph:
    """Return the graph without some nodes, their users, and leaves that become unused."""
    first = len(graph.leaves)
    for n, node in enumerate(graph.nodes, first):
        if set(node.inputs) & gone:
            gone = gone | {n}
    kept = [n for n in range(first, first + len(graph.nodes)) if n not in gone]
    needed = {i for n in kept for i in (n, *graph.nodes[n - first].inputs)}
    numbers = {old: new for new, old in enumerate(sorted(needed))}
    leaves = tuple(leaf for n, leaf in enumerate(graph.leaves) if n in needed)
    nodes = (graph.nodes[n - first] for n in kept)
    return Graph(leaves, tuple(Node(x.name, tuple(numbers[i] for i in x.inputs), x.params) for x in nodes))
