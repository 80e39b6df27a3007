"""The search for a failing test case: examine one case on all executors, and choose the cases to try."""
