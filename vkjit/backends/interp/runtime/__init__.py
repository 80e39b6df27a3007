"""The interpreter as a device."""
