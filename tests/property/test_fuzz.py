"""Tests of the fuzzer: regression programs, a few new programs, and its components.

`python -m vkjit.testing.fuzz` is the long run. Files in `found/` are programs that once failed because of a bug, after
shrinking; each runs on every executor, at every level.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vkjit.ir import OPS, verify
from vkjit.ir.rewrite import clone_module
from vkjit.testing.fuzz import Checker, Options, generate, parse_program, program_text, shrink
from vkjit.testing.fuzz.check import MAX_HARDWARE_WORDS, is_too_long
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret
from vkjit.testing.fuzz.program import Memory
from vkjit.testing.fuzz.sources import SOURCES, check_source, generate_source

FOUND = sorted((Path(__file__).parent / "found").glob("*.ir"))


def checker(device: Any) -> Checker:
    return Checker([] if device.caps.kind == "interpreter" else [device])


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_found_programs(device: Any, path: Path) -> None:
    finding = checker(device).check(parse_program(path.read_text(encoding="utf-8")))
    assert finding is None, finding


@pytest.mark.parametrize("seed", range(8))
def test_fresh_programs(device: Any, seed: int) -> None:
    finding = checker(device).check(generate(5_000_000 + seed, 12))
    assert finding is None, finding


def sources(kind: str, count: int) -> list[str]:
    """Return the first programs in Python of a kind."""
    texts = (generate_source(seed) for seed in itertools.count(SOURCES))
    return list(itertools.islice((t for t in texts if t.splitlines()[0].endswith(f", {kind}")), count))


@pytest.mark.parametrize(
    "kind", ["captures", "collectives", "comparisons", "deep_returns", "loops", "products", "ranges", "views"]
)
def test_programs_in_python(device: Any, kind: str) -> None:
    devices = [] if device.caps.kind == "interpreter" else [device]
    for text in sources(kind, 3):
        finding = check_source(text, devices, Counter())
        assert finding is None, f"{finding}\n{text}"


def test_a_difference_of_a_program_in_python_is_seen() -> None:
    (text,) = sources("ranges", 1)
    finding = check_source(text.replace("n += 1", "n += 2"), [], Counter())
    assert finding is not None and finding.stage == "source on interpreter"


def test_the_same_seed_gives_the_same_program() -> None:
    assert program_text(generate(11)) == program_text(generate(11)) != program_text(generate(12))
    assert generate_source(SOURCES + 11) == generate_source(SOURCES + 11) != generate_source(SOURCES + 12)


def test_text_keeps_everything() -> None:
    for seed in range(12):
        program = generate(seed)
        text = program_text(program)
        again = parse_program(text)
        assert program_text(again) == text
        verify(again.module)
        outcomes = [interpret(p, Memory.of(p)) for p in (program, again)]
        assert difference(program, *outcomes) == ""


def test_programs_cover_the_op_table() -> None:
    seen = {op.name for seed in range(250) for f in generate(seed).module.all_functions() for op in f.body.walk()}
    others = {name for name in OPS if name.startswith(("mat_", "tile_"))}  # these have their own generators
    assert len(seen) >= 0.95 * len(OPS.keys() - others), sorted(OPS.keys() - others - seen)


def test_a_difference_is_seen() -> None:
    """Removing the stores of a program changes its results."""
    program = generate(3)
    memory = Memory.of(program)
    module = clone_module(program.module)
    module.kernel.body.ops = [op for op in module.kernel.body.ops if op.name != "store"]
    assert difference(program, interpret(program, memory, module), interpret(program, memory))


def test_layouts_stay_inside_their_buffers() -> None:
    for seed in range(100):
        program = generate(seed)
        for layout in program.layouts:
            if layout is not None:
                reach = [s * (extent - 1) for s, extent in zip(layout.strides, layout.shape, strict=True)]
                low = layout.first + sum(r for r in reach if r < 0)
                high = layout.first + sum(r for r in reach if r > 0)
                assert 0 <= low <= high < layout.total


def test_shrinking_keeps_what_fails() -> None:
    """Shrinking leaves little more than the operation that the predicate asks for."""
    program = next(
        p for p in map(generate, range(40)) if any(op.name == "atomic" for op in p.module.kernel.body.walk())
    )

    def fails(candidate: Any) -> bool:
        return any(op.name == "atomic" for op in candidate.module.kernel.body.walk())

    small = shrink(program, fails, seconds=20)
    assert fails(small)
    before, after = (sum(1 for _ in p.module.kernel.body.walk()) for p in (program, small))
    assert after < before / 4
    interpret(small, Memory.of(small))


def test_stages_name_the_device(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    """A finding is found again by the name of its stage, whatever the device is called."""
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter isn't a device of a check")
    runs = iter(("", "one", "", "one"))  # the second run of each check, that of the interpreter, differs
    monkeypatch.setattr("vkjit.testing.fuzz.check.difference", lambda *_: next(runs))
    renamed: Any = SimpleNamespace(name="AMD Radeon 780M", caps=device.caps)
    checker, program = Checker([renamed], Options(chains=False)), generate(12)
    finding = checker.check(program)
    assert finding is not None and finding.stage.startswith("interpreter, level ")
    assert finding.stage.endswith(" for AMD Radeon 780M")
    assert checker.check(program, only=finding.stage) is not None


def test_options_leave_runs_out() -> None:
    plain = Checker([], Options(variants=False, chains=False))
    assert plain.check(generate(1)) is None
    assert plain.counts["runs"] == 1


@pytest.mark.parametrize(
    ("kind", "words", "expected"), [("discrete", 1, True), ("discrete", 0, False), ("cpu", 1, False)]
)
def test_long_modules_stay_off_hardware(kind: str, words: int, expected: bool) -> None:
    device: Any = SimpleNamespace(caps=SimpleNamespace(kind=kind))
    artifact: Any = SimpleNamespace(code=bytes(4 * (MAX_HARDWARE_WORDS + words)))
    assert is_too_long(device, artifact) is expected
