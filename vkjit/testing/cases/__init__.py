"""Test cases: a kernel's arguments, their memory layouts, launch schedules, and the expected outputs."""
