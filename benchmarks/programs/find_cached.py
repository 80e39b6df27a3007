"""Print the milliseconds of a disk cache lookup of the 50-line kernel.

The time covers hashing the compiler's files, hashing the kernel's source and captured values, and reading the file.
With `store` as an argument, the kernel is compiled and stored instead.
"""

from __future__ import annotations

import os
import sys
import time

os.environ["VKJIT_CACHE"] = "1"
os.environ["VKJIT_SPIRV_VAL"] = "0"
sys.argv.append("cached")

import compile_kernel

import vkjit as vk
from vkjit.compiler import cache, driver
from vkjit.frontend import ArrayArg, ScalarArg, Signature


def main() -> int:
    found = [info for info in vk.devices() if info.kind not in ("llvm-cpu", "interpreter") and not info.missing]
    if not found:
        print("no device of a Vulkan driver on this machine")
        return 3
    caps = found[0].caps
    array = ArrayArg(vk.f32, 1, contiguous=True, restrict=True)
    signature = Signature((array, array, ScalarArg(vk.i32)), (64, 1, 1), narrow=True, typevars=(("T", vk.f32),))
    start = time.perf_counter()
    cache.compiler_digest.__wrapped__()
    driver.compile_kernel(compile_kernel.fifty.spec, signature, caps)
    milliseconds = (time.perf_counter() - start) * 1e3
    if driver.TIMES.cached != (0 if "store" in sys.argv else 1):
        raise RuntimeError("the kernel was expected in the cache" if "store" not in sys.argv else "it was there before")
    print(milliseconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
