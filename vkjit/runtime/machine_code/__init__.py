"""Machine code that launches for a Python call: checks of its arguments, argument block, and the back end's launch."""
