"""Code generation for the CPU: IR to LLVM IR, vectorized over invocations."""
