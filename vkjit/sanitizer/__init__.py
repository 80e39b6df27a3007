"""Launches under the sanitizer: shadow memory, redzones and reports."""
