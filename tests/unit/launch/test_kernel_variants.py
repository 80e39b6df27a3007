"""Tests of kernels in closures: annotations name variables of a function that has returned."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from vkjit.testing.sanitizer import sanitize


def scaled_by(S: Any) -> Any:
    """Make a kernel whose factor has the type S, which only the annotation refers to."""

    @vk.kernel(over="y")
    def scaled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], factor: S):
        y[vk.global_id(0)] = x[vk.global_id(0)] * vk.f32(factor)

    return scaled


def test_a_variant_keeps_what_the_annotations_say() -> None:
    x = np.arange(5, dtype=np.float32)
    with vk.use_device("interpreter"):
        for options in ({}, {"debug": True}, {"sanitize": True}, {"local": 32}):
            kernel = scaled_by(vk.f64).variant(**options)
            assert kernel.spec.params[2].dtype is vk.f64
            assert (kernel(x, factor=2.0) == 2 * x).all()


def test_the_sanitizer_takes_such_a_kernel() -> None:
    with vk.use_device("interpreter"):
        assert not sanitize(scaled_by(vk.i32), np.ones(3, np.float32), factor=2)


def test_kernels_of_the_library_are_known_by_their_module() -> None:
    from vkjit.launch.plan import of_library
    from vkjit.stdlib.rows import softmax

    assert of_library(softmax.chunk_statistics.spec.fn.__module__)
    assert not of_library(__name__)


def test_classes_of_arrays_that_lead_to_one_signature_share_its_code() -> None:
    @vk.kernel(over="y")
    def copied(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)]

    with vk.use_device("interpreter"):
        aligned, shifted = vk.ones(8), vk.zeros(9)[1:]
        copied(aligned[:8], shifted)
        copied(shifted, aligned)
    first, second = copied._plans.values()
    assert first is second
