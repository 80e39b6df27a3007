"""Explanation of failures of property tests: source lines at fault, suggested repairs, and scripts that reproduce the
failure. `explainer` combines the other modules.
"""
