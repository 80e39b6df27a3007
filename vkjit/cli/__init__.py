"""The command line: `python -m vkjit info | doctor | demo | test | inspect | tune | cache`.

There is one module per command; `main` parses the arguments and calls it.
"""
