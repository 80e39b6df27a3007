"""User-facing API of devices: streams and events, captured graphs, memory, profiling, inspection."""
