"""Every standard library kernel satisfies its properties: tested alone, or through the operations that launch it.

The operations run on the interpreter, with the variants of both device classes. `python -m tests.stdlib_properties`
runs all of them; with --mutate, it runs them on mutated kernels.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare operations with")

import vkjit as vk  # noqa: E402  # after importorskip
from tests.stdlib_properties.catalogue import KernelProperty  # noqa: E402
from tests.stdlib_properties.coverage import all_kernels, launched, name_of  # noqa: E402
from tests.stdlib_properties.operations import Operation, check_operation  # noqa: E402
from tests.stdlib_properties.suite import ALL_KERNELS, ALL_OPERATIONS  # noqa: E402
from vkjit.testing.checks import first_finding  # noqa: E402
from vkjit.testing.masks import masked, masked_caps  # noqa: E402

QUICK = [
    o
    for o in ALL_OPERATIONS
    if not set(o.kinds) & {"llvm", "llvmpipe"} and "long" not in o.name and "large" not in o.name
]


@pytest.mark.parametrize("item", ALL_KERNELS, ids=lambda item: item.label)
def test_kernel(item: KernelProperty) -> None:
    finding = first_finding(item.kernel, item.reference, devices="interpreter", max_examples=4, seed=1, **item.inputs)
    assert finding is None, finding


@pytest.mark.parametrize("operation", QUICK, ids=lambda operation: operation.name)
def test_operation(operation: Operation) -> None:
    check_operation(operation)


@pytest.mark.slow
def test_every_kernel_of_the_library_has_a_property() -> None:
    with launched() as seen:
        for operation in ALL_OPERATIONS:
            check_operation(operation)
    direct = {name_of(i.kernel) for i in ALL_KERNELS}
    missing = all_kernels() - set(seen) - direct
    if not any("llvmpipe" in info.name.lower() for info in vk.devices()):
        missing -= {name for name in missing if "f32_pairs" in name or "f32x2" in name}
    if not any(info.kind == "llvm-cpu" for info in vk.devices()):
        missing -= {
            name
            for name in missing
            if name.startswith(("conv.cpu_rows.", "conv.wgrad_cpu.", "matmul.cpu_panels.", "pool.pool._put"))
        }
    assert not missing


def test_launches_are_seen_although_calls_were_repeated(device: Any) -> None:
    with vk.use_device(device):
        x = vk.ones(3, 5)
        for _ in range(4):
            vk.exp(x)
        with launched() as seen:
            vk.exp(x)
    assert any(name.startswith("elementwise.") for name in seen)


SMALL = {"softmax", "layer_norm", "cross_entropy", "conv2d", "max_pool", "avg_pool", "indexing", "unary", "binary"}


@pytest.mark.parametrize("operation", [o for o in ALL_OPERATIONS if o.name in SMALL], ids=lambda o: o.name)
@pytest.mark.parametrize("mask", ["small", "subgroup4", "subgroup64", "shared=16384 invocations=128 without=f64,f16"])
def test_operations_on_smaller_devices(operation: Operation, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices with 16 KiB of shared memory, workgroups of 128, no f64 or f16, or subgroups of 4 and 64."""
    with masked(mask) as device:
        real = vk.use_device
        monkeypatch.setattr(vk, "use_device", lambda spec: real(device if spec == "interpreter" else spec))
        plain = Operation(**{**{f: getattr(operation, f) for f in operation.__dataclass_fields__}, "kinds": ("cpu",)})
        check_operation(plain)


@vk.kernel(over="y")
def doubled(x: vk.In[vk.f64, "N"], y: vk.Out[vk.f64, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * 2.0


@vk.kernel(over="y")
def halved(x: vk.In[vk.f16, "N"], y: vk.Out[vk.f16, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * 0.5


@pytest.mark.parametrize("kernel", [doubled, halved], ids=lambda kernel: kernel.name)
def test_a_missing_type_is_a_feature_error(device: Any, kernel: Any) -> None:
    import numpy as np

    kind = np.float64 if kernel is doubled else np.float16
    if device.caps.kind == "llvm-cpu":
        pytest.skip("the processor's device has all types whatever its caps say")
    with masked("mobile", device), pytest.raises(vk.FeatureError, match="which this device lacks"):
        kernel(np.ones(3, kind))


def test_bools_are_joined_without_numbers_of_a_byte() -> None:
    import numpy as np

    from vkjit.stdlib.registry import forcing_class

    with masked("without=i8") as device, forcing_class("gpu"):
        for count in (7, 2048):
            x, y = (np.arange(count) % n == 0 for n in (2, 3))
            found = vk.cat([vk.tensor(x, device=device), vk.tensor(y, device=device)])
            np.testing.assert_array_equal(found.numpy(), np.concatenate([x, y]))


def test_masks_that_are_not_understood() -> None:
    caps = vk.device("interpreter").caps
    for mask in ("tiny", "shared=x", "without=f128", "subgroup=3"):
        with pytest.raises(vk.ArgumentError, match="mask"):
            masked_caps(caps, mask)
    assert masked_caps(caps, "mobile").max_invocations == 128
    combined = masked_caps(caps, "raspberry_pi_5 subgroup=16")
    assert combined.max_invocations == 256 and combined.subgroup_sizes == (16,) and "int64" not in combined.features


def test_a_gpu_with_small_workgroups_takes_kernels_that_fit(device: Any) -> None:
    import numpy as np

    from vkjit.stdlib.registry import device_class

    if device.caps.kind in ("llvm-cpu", "interpreter"):
        pytest.skip("a Vulkan device is needed")
    with masked("phone", device) as phone:
        assert phone.caps.kind == "discrete" and device_class(phone) == "cpu"
        x = np.random.default_rng(1).standard_normal((3, 300)).astype(np.float32)
        found = vk.softmax(vk.tensor(x), dim=1).numpy()
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.abs(found - e / e.sum(axis=1, keepdims=True)).max() < 300 * 2.0**-24
