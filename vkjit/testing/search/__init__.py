"""The search for a failing test case: choose the cases to try, and examine each on all devices."""
