"""Tests of the array properties that generated programs assume: they hold and are passed to the compiler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vkjit.ir.parser import parse_module
from vkjit.runtime.array import _layout
from vkjit.testing.fuzz import generate
from vkjit.testing.fuzz.assumptions import violated_attributes
from vkjit.testing.fuzz.generate import TILES
from vkjit.testing.fuzz.program import Layout, Program, program_text


def test_programs_keep_their_promises_as_launches_see_them() -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(40), *range(TILES, TILES + 60)):
        program = generate(seed)
        kernel = program.module.kernel
        assert violated_attributes(kernel, program.layouts) == []
        pairs = [
            (p.type, layout) for p, layout in zip(kernel.params, program.layouts, strict=True) if layout is not None
        ]
        forms = [_layout(kind.dtype, layout.shape, layout.strides) for kind, layout in pairs]  # type: ignore[attr-defined]
        assert any(form[0].backward for form in forms) == bool(kernel.attrs.get("backward"))
        if seed >= TILES and kernel.attrs.get("aligned"):
            assert all(form[1].aligned for form in forms)
        seen.update(name for name in ("aligned", "backward", "narrow") if kernel.attrs.get(name))
        seen.update("contiguous" for kind, _ in pairs if kind.contiguous)  # type: ignore[attr-defined]
        assert program_text(generate(seed)) == program_text(program)
    assert all(seen[name] >= 10 for name in ("aligned", "backward", "narrow", "contiguous")), seen


def test_what_is_broken_is_said() -> None:
    text = (
        "kernel @k(%x: array<f32, 2, in, contiguous>) attrs {local_size = (1, 1, 1), aligned = true} {\n  return\n}\n"
    )
    kernel = parse_module(text).kernel
    right = Layout((2, 4), (4, 1), 4, 12)
    assert violated_attributes(kernel, [right]) == []
    assert "16 bytes" in violated_attributes(kernel, [replace(right, first=1)])[0]
    found = violated_attributes(kernel, [replace(right, strides=(-4, 1))])
    assert [("negative" in line, "contiguous" in line) for line in found] == [(True, False), (False, True)]


def test_layouts_of_programs_on_tiles_stay_inside_their_buffers() -> None:
    for seed in range(TILES, TILES + 100):
        program: Program = generate(seed)
        for layout in program.layouts:
            assert layout is not None
            if 0 in layout.shape:
                continue
            reach = [s * (extent - 1) for s, extent in zip(layout.strides, layout.shape, strict=True) if extent]
            low, high = (sum(r for r in reach if (r < 0) == below) for below in (True, False))
            assert 0 <= layout.first + low
            assert layout.first + high < layout.total
