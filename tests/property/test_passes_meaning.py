"""Property tests that passes preserve semantics: the interpreter returns the same bits before and after.

NaNs compare equal regardless of their payload, which folding may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.programs import GROUPS, arguments, modules
from tests.selection import examples
from vkjit.backends.interp import run_module
from vkjit.ir import Module, print_module, verify
from vkjit.ir.parser import parse_module
from vkjit.ir.rewrite import clone_module
from vkjit.passes.registry import run_passes

EXAMPLES = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))

CHAINS = [
    ("fold", "high"),
    ("simplify_branches", "high"),
    ("fold,simplify_branches", "high"),
    ("cse", "high"),
    ("dce", "high"),
    ("licm", "high"),
    ("simplify_branches,cse,fold,licm,dce", "high"),
    ("lower_exits", "normal"),
    ("lower_exits,fold,simplify_branches,cse,fold,dce", "normal"),
    ("lower_exits,inline", "normal"),
    ("lower_exits,inline,lower_access", "normal"),
    ("lower_exits,inline,lower_access,licm,cse,dce", "normal"),
    ("lower_exits,inline,lower_access,narrow_index,fold,dce", "normal"),
    ("narrow_index,dce", "high"),
    ("sroa", "high"),
    ("lower_exits,inline,limit_nesting,dce", "normal"),
    ("lower_exits,inline,sroa,dce", "normal"),
    ("lower_exits,fold,unroll", "normal"),
    ("cse,dead_stores", "high"),
    ("fuse_multiply_add,dce", "high"),
    ("lower_exits,inline,fold,simplify_branches,unroll,sroa,fold,dce", "normal"),
    ("lower_exits,inline,lower_access,narrow_index,fold,cse,widen_access,dce", "normal"),
    ("lower_exits,inline,licm,strength_reduction,dce", "normal"),
    ("pipeline0", "primitive"),
    ("pipeline1", "primitive"),
    ("pipeline2", "primitive"),
]


def outcome(module: Module) -> list[Any]:
    values = arguments()
    run_module(module, GROUPS, values, subgroup_size=4)
    return values


def assert_same(found: list[Any], wanted: list[Any], text: str) -> None:
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(a, np.ndarray):
            continue
        same = a == b if a.dtype.kind != "f" else (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
        assert same.all(), f"found\n{a}\nexpected\n{b}\nafter\n{text}"


@pytest.mark.parametrize(("chain", "form"), CHAINS, ids=[chain for chain, _ in CHAINS])
@EXAMPLES
@given(module=modules())
def test_meaning_is_kept(chain: str, form: str, module: Module) -> None:
    verify(module)
    changed = run_passes(clone_module(module), chain.split(","))
    verify(changed, form)
    assert_same(outcome(changed), outcome(module), print_module(changed))


@EXAMPLES
@given(module=modules())
def test_text_keeps_everything(module: Module) -> None:
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text
    assert_same(outcome(again), outcome(module), text)
