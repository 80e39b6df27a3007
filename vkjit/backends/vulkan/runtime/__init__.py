"""Vulkan runtime: devices, memory, queues, pipelines and launches. Independent of the IR."""
