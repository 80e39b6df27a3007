"""Reports of generated kernels become errors that name the line, the invocation and the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import Build, linear, on_device
from vkjit import dtypes
from vkjit.errors import BoundsError, KernelAssertionError, Loc, ReportSite


def test_report_names_the_invocation_and_the_values(device: Any) -> None:
    b = Build("bounded", {"out": linear(dtypes.i32)}, local=(4, 2, 1))
    site = b.module.add_site(ReportSite("bounds", Loc("k.py", 4, 8, 12), "index {0} of {1}"))
    column, row = b.gid(0), b.gid(1)
    at = b.emit("add", b.emit("mul", row, b.index(4)), column)
    b.op("report", b.emit("eq", at, b.index(21)), at, b.i32(-7), site=site)
    b.op("store", b.p["out"], at, b.i32(1))
    with pytest.raises(BoundsError, match="index 21 of -7") as caught:
        on_device(device, b.finish(), (1, 3, 1), [np.zeros(24, np.int32)])
    assert caught.value.invocation == (1, 5, 0)
    assert caught.value.loc.line == 4


def test_the_first_report_wins_and_others_are_dropped(device: Any) -> None:
    b = Build("asserts", {"out": linear(dtypes.i32)})
    first = b.module.add_site(ReportSite("assert", Loc("k.py", 1), "one"))
    second = b.module.add_site(ReportSite("assert", Loc("k.py", 2), "two"))
    always = b.emit("ge", b.gid(), b.index(0))
    never = b.emit("lt", b.gid(), b.index(0))
    b.op("report", never, site=first)
    b.op("report", always, site=second)
    with pytest.raises(KernelAssertionError, match="two"):
        on_device(device, b.finish(), 2, [np.zeros(1, np.int32)])


def test_silence_without_a_failure(device: Any) -> None:
    b = Build("fine", {"out": linear(dtypes.i32)})
    site = b.module.add_site(ReportSite("assert", Loc("k.py", 1), "never"))
    b.op("report", b.emit("lt", b.gid(), b.index(0)), b.gid(), site=site)
    b.op("store", b.p["out"], b.gid32(), b.i32(1))
    (out,) = on_device(device, b.finish(), 1, [np.zeros(64, np.int32)])
    np.testing.assert_array_equal(out, 1)
