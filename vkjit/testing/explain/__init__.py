"""Explanation of failures: provenance, localization, suggested fixes and reproducers."""
