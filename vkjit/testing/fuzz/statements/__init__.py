"""The kinds of statements of generated programs. `fuzz.generate` imports the modules of this package; they register
their kinds of statements in `builder`.
"""
