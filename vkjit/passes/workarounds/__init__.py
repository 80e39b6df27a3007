"""Workarounds for driver bugs, one pass each.

A quirk is a known bug of some Vulkan drivers, by name; `vkjit/backends/vulkan/runtime/quirks.py` lists the quirks and
their drivers. These passes run at the end of the pipeline, on devices with the quirk. They take the form "primitive",
the input of emitters (see `ir.verify`).
"""
