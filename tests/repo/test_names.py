"""Retired names don't come back: old identifiers and their replacements, checked against file names and the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.repo import checkout

FOLDERS = ("vkjit", "stdlib", "tools", "tests", "benchmarks", "examples", "scripts")

MODULES = {
    "activation_more": "activation_functions", "alike": "value_numbering", "arithmetic_more": "special", "canaries": "redzones",
    "carried": "loop_carried", "costs": "cost_model", "coupled": "shrink/joint", "crew": "thread_pool",
    "elementwise_fours": "vec4", "elsewhere": "migration_hints", "findings": "sanitizer_reports", "foreign": "interop/torch",
    "fours_of_rows": "copy_vec4", "ghost": "ghostwriter", "halting": "safepoints", "held": "tile_state",
    "hints": "mask_tests, preconditions", "holding": "cross_loop_reuse", "identities": "algebraic_simplify",
    "impatient": "time_limited", "index_fours": "gather_vec4", "inplace_more": "inplace_copies", "jit": "launch/kernel",
    "join": "cat", "keys": "ordered_keys", "laws": "metamorphic", "loss_more": "loss_functions", "more": "a name for what it holds",
    "native_words": "abi", "nn_more": "composed", "origins": "provenance", "overlap": "software_pipeline",
    "phases": "barrier_regions", "processor": "softmax_cpu_plan", "quota": "cpu_count", "recipe": "launch/cache",
    "repeat": "launch_recorder", "repeats": "op_cache", "rounds": "loop_interchange", "sights": "numeric_events",
    "staging": "host_arrays", "streaming": "nontemporal_stores", "watch": "cancellation", "ways": "dispatch_cache",
}  # fmt: skip
"""Retired module names, with the module that took their place."""

KEPT_MODULES = frozenset({"vkjit/testing/fuzz/watch/__init__.py"})
"""Modules whose name is that of a retired one, but means what the field means by it: watched memory accesses."""

NAMES = {
    "Ahead": "Prefetch", "Alike": "ValueNumbers", "Calls": "CallForm", "Canaries": "Redzones", "Crew": "ThreadPool",
    "DirectLaunch": "PreparedLaunch", "DirectRecorder": "FastPath", "Extreme": "MinMax", "Fit": "ScalarCoercion",
    "Form": "SpecClass", "Keys": "CallForm", "LawFailure": "RelationFailure", "Launching": "RecordedLaunch", "Mend": "Repair",
    "Overlapped": "PipelinedProduct", "Recipe": "CachedLaunch", "Shorts": "CallForm", "Sights": "NumericEvents",
    "TakenApart": "SplitStruct", "Way": "CallForm", "Watch": "CancellationToken", "Witness": "LaunchRecorder",
    "Workshop": "LoweringContext", "at_home": "owner", "distrust": "mark_dirty", "each_round": "at_iteration",
    "held_rows": "softmax_in_registers", "joined": "cat_elements, pack_f32x2", "known_rounds": "known_trip_count",
    "last_round": "masked_iteration_cost", "leave_round": "leave_iteration", "lenders": "external_waits",
    "open_ticket": "open_command_handle", "quota": "cpu_count", "rounds_outside": "interchange", "shop": "context",
    "sort_by_digits": "radix_sort", "start_home": "start_as_owner", "turned": "transposed", "with_before": "apply_prefix_extremes",
}  # fmt: skip
"""Retired names of classes, functions, attributes and parameters, without leading underscores."""

PATTERNS = {
    r"(LEAST|MOST|WORTH|WANTED)_\w+": "MIN_..., MAX_..., ..._THRESHOLD, TARGET_...",
    r"\w*_?fours?(_\w+)?|fours\d\w*": "..._vec4",
    r"A_TURNED|B_TURNED|TURNED": "A_TRANSPOSED, B_TRANSPOSED, TRANSPOSED",
}
"""Retired forms of names, as regular expressions for whole names."""

HISTORIC = frozenset({"tests/repo/test_names.py"})


def defined_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a module defines, with its line: classes, functions, parameters, targets, attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def replacement(name: str) -> str | None:
    """Return what replaces a retired name, or None for a name in use."""
    bare = name.lstrip("_")
    if bare in NAMES:
        return NAMES[bare]
    return next((new for pattern, new in PATTERNS.items() if re.fullmatch(pattern, bare)), None)


def sources() -> list[str]:
    """Return the checked files, relative to the root."""
    names = (checkout.name_of(path) for path in checkout.python_files())
    return [
        name
        for name in names
        if name.startswith(FOLDERS) and not name.startswith("tests/golden") and name not in HISTORIC
    ]


def test_no_file_has_a_retired_name() -> None:
    retired = []
    for name in sources():
        parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
        if name not in KEPT_MODULES and parts[-1] in MODULES:
            retired.append(f"{name}: {MODULES[parts[-1]]}")
        if parts[-1].endswith("_more"):
            retired.append(f"{name}: name it for what it holds")
    assert not retired


def test_no_definition_has_a_retired_name() -> None:
    files = sources()
    assert len(files) > 500, "the list of files came out short"
    retired = []
    for name in files:
        tree = ast.parse((checkout.ROOT / name).read_text(encoding="utf-8"))
        for defined, line in defined_names(tree):
            new = replacement(defined)
            if new is not None:
                retired.append(f"{name}:{line}: {defined} is now {new}")
    assert not retired, "\n".join(retired)


@pytest.mark.parametrize("name", ["MOST_SHADOW", "_LEAST", "map_fours", "fours2_rows", "Witness", "_turned"])
def test_retired_names_are_recognized(name: str) -> None:
    assert (replacement(name) is not None) == (name != "_LEAST")


@pytest.mark.parametrize("name", ["MAX_SHADOW", "almost", "Window", "fourier", "underway", "MOST"])
def test_names_in_use_are_accepted(name: str) -> None:
    assert replacement(name) is None
