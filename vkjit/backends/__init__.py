"""Back ends: Vulkan, CPU (LLVM), and the reference interpreter, each behind the `Device` interface of `vkjit.runtime`."""
