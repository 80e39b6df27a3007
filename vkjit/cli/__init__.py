"""The console: `python -m vkjit info | doctor | demo | inspect | cache | test | bench`; one module per command."""
