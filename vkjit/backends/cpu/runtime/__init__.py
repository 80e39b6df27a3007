"""CPU runtime: the device, its thread pool, host memory and the LLVM JIT. Independent of the IR."""
