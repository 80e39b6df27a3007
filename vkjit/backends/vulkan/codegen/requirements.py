"""Device features, limits and execution modes that a kernel requires.

If the device lacks something, FeatureError names the kernel and describes the requirement.
"""

from __future__ import annotations

import math

from vkjit.errors import FeatureError, InternalError

from .context import Context

__all__ = ["check_features", "check_sizes", "execution_modes"]

_FEATURES = {
    "Int8": ("int8", "arithmetic on i8 and u8"),
    "Int16": ("int16", "arithmetic on i16 and u16"),
    "Int64": ("int64", "64-bit integers"),
    "Float16": ("float16", "arithmetic on f16"),
    "Float64": ("float64", "f64"),
    "StorageBuffer8BitAccess": ("storage_8bit", "arrays of 8-bit elements"),
    "StorageBuffer16BitAccess": ("storage_16bit", "arrays of 16-bit elements"),
    "PhysicalStorageBufferAddresses": ("buffer_device_address", "buffer device addresses"),
    "VulkanMemoryModel": ("memory_model", "the Vulkan memory model"),
    "VulkanMemoryModelDeviceScope": ("memory_model_device_scope", "memory ordering at device scope"),
    "GroupNonUniform": ("subgroup_basic", "subgroups"),
    "GroupNonUniformVote": ("subgroup_vote", "subgroup votes"),
    "GroupNonUniformArithmetic": ("subgroup_arithmetic", "subgroup arithmetic"),
    "GroupNonUniformBallot": ("subgroup_ballot", "subgroup ballots"),
    "GroupNonUniformShuffle": ("subgroup_shuffle", "subgroup shuffles"),
    "CooperativeMatrixKHR": ("cooperative_matrix", "cooperative matrices"),
    "BFloat16TypeKHR": ("bfloat16", "bf16 as a type of its own"),
    "BFloat16CooperativeMatrixKHR": ("bfloat16_cooperative_matrix", "cooperative matrices of bf16"),
}
"""SPIR-V capability -> (feature, description). The lowering of atomics records the features that they need, because
these differ by storage class."""

_ATOMIC_DESCRIPTIONS = {
    "int64_atomics": "64-bit atomics on arrays",
    "int64_shared_atomics": "64-bit atomics on shared memory",
}

_MODES = (
    ("SignedZeroInfNanPreserve", "signed_zero_inf_nan"),
    ("RoundingModeRTE", "rte"),
    ("DenormPreserve", "denorm_preserve"),
)


def check_sizes(ctx: Context, local_size: tuple[int, int, int]) -> None:
    """Raise FeatureError if the workgroup is too large for the device.

    In a kernel that uses subgroups, the workgroup size must also be a multiple of the subgroup size.
    """
    caps, name = ctx.caps, ctx.kernel.name
    count = math.prod(local_size)
    if count > caps.max_invocations or any(n > limit for n, limit in zip(local_size, caps.max_local_size, strict=True)):
        raise FeatureError(
            f"kernel {name}: a workgroup of {local_size} is too large for this device, which runs at most "
            f"{caps.max_invocations} invocations, {caps.max_local_size} along the axes: choose a smaller local="
        )
    if ctx.kernel.attrs.get("subgroups") and count % ctx.subgroup_size:
        raise FeatureError(
            f"kernel {name} uses subgroups of {ctx.subgroup_size} invocations: its workgroup size {count} has to be a "
            "multiple of that"
        )


def execution_modes(ctx: Context) -> None:
    """Declare the execution modes for floating-point arithmetic and for subgroups that the device supports.

    A float control is declared if the device supports it for all float widths in use. Float controls are stricter than
    the defaults: with RoundingModeRTE, NVIDIA's f32 division is correctly rounded (2 ULP without it) and slower.
    Therefore `fast_math` kernels don't declare them. Kernels that use subgroups declare MaximallyReconvergesKHR.
    """
    writer, features = ctx.writer, ctx.caps.features
    widths = sorted({info.bits for info in writer.types.values() if info.kind == "float"})
    for mode, feature in () if ctx.kernel.attrs.get("fast_math") else _MODES:
        if all(f"{feature}_f{width}" in features for width in widths):
            for width in widths:
                writer.execution_mode(ctx.function, mode, width)
                ctx.features.add(f"{feature}_f{width}")
    if ctx.kernel.attrs.get("subgroups") and "maximal_reconvergence" in features:
        writer.execution_mode(ctx.function, "MaximallyReconvergesKHR")
        ctx.features.add("maximal_reconvergence")


def check_features(ctx: Context, shared_bytes: int) -> frozenset[str]:
    """Return the features that the kernel needs.

    Raises FeatureError if the device lacks one of them or has too little shared memory, InternalError for 64-bit
    integers that `split_int64` should have split.
    """
    caps, name = ctx.caps, ctx.kernel.name
    capabilities = ctx.writer.requirements()[0]
    if "Int64" in capabilities and not ctx.int64:
        raise InternalError(f"kernel {name}: 64-bit integers have to be split for this device")
    needed = dict.fromkeys(ctx.features, "")
    for capability in capabilities:
        if capability in _FEATURES:
            feature, description = _FEATURES[capability]
            needed[feature] = description
    missing = sorted(feature for feature in needed if feature not in caps.features)
    if missing:
        description = ", ".join(
            f"{needed[feature] or _ATOMIC_DESCRIPTIONS.get(feature, feature)} ({feature})" for feature in missing
        )
        raise FeatureError(f"kernel {name} needs {description}, which this device lacks")
    if shared_bytes > caps.shared_bytes:
        raise FeatureError(
            f"kernel {name} needs {shared_bytes} bytes of shared memory; this device has {caps.shared_bytes}"
        )
    return frozenset(needed)
