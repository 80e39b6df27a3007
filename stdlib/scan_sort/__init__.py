"""Scans and sorts."""
