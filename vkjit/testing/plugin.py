"""vkjit's pytest plugin, `pytest_vkjit`, for `-p vkjit.testing.plugin` and `pytest_plugins` where vkjit isn't installed.

The installed plugin has this module's name, so that it isn't loaded twice.
"""

from pytest_vkjit import (
    devices_by_label,
    is_wanted,
    labels,
    opened,
    parameters,
    pytest_addoption,
    pytest_configure,
    pytest_generate_tests,
    pytest_runtest_makereport,
    summary,
    vkjit_device,
    vkjit_leak_check,
)

__all__ = [
    "devices_by_label",
    "is_wanted",
    "labels",
    "opened",
    "parameters",
    "pytest_addoption",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_runtest_makereport",
    "summary",
    "vkjit_device",
    "vkjit_leak_check",
]
