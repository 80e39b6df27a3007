"""Command-line tools for work on vkjit itself."""
