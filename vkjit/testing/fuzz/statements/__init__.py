"""The kinds of statements of generated programs. `fuzz.generate` imports the modules, which register them in
`builder`.
"""
