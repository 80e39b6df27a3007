"""The command line: `python -m vkjit info | doctor | demo | test | inspect | tune | cache`; one module per command."""
