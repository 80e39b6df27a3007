"""Vulkan runtime: devices, memory, queues, pipelines and launches. Knows no IR."""
