"""Cumulative operations (scans), sorting, top-k and binary search."""
