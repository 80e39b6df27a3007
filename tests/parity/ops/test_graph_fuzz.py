"""Random graphs of tensor operations against PyTorch; a sample of `python -m tests.parity.graph_fuzz`."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip
from tests.parity.graph_fuzz.__main__ import search  # noqa: E402
from tests.parity.graph_fuzz.compare import examine  # noqa: E402
from tests.parity.graph_fuzz.program import drawn, from_text  # noqa: E402
from tests.parity.graph_fuzz.table import TABLE  # noqa: E402


@pytest.mark.parametrize("seed", range(24))
def test_graphs_agree(seed: int) -> None:
    found = search(5000 + seed, 10, "interpreter")
    assert found is None, found


def test_a_wrong_operation_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TABLE["cumsum"]

    def wrong(xp: object, p: tuple[int, ...], x: vk.Tensor) -> object:
        return right.call(xp, p, x) if xp is not vk or x.shape[p[0]] < 3 else x.cumsum(p[0]) * 1.001

    monkeypatch.setitem(TABLE, "cumsum", replace(right, call=wrong))
    seed = next(s for s in range(9, 4000, 10) if any(n.name == "cumsum" for n in drawn(s, 10).nodes[:-2]))
    found = search(seed, 10, "interpreter")
    assert found is not None and [n.name for n in found.graph.nodes] == ["cumsum"]
    assert examine(from_text(found.graph.to_text()), "interpreter") is not None
    monkeypatch.undo()
    assert examine(found.graph, "interpreter") is None
