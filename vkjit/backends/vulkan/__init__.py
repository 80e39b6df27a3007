"""Vulkan back end: `codegen` emits SPIR-V from the IR; `runtime` owns devices, memory, queues and pipelines."""
