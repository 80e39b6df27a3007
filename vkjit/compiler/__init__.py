"""Compilation driver, kernel cache and fingerprints."""
