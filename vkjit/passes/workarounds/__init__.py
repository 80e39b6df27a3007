"""Workarounds for driver bugs, one pass each. They run last, for devices with the quirk in `runtime/quirks.py`."""
