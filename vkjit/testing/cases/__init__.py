"""Test cases: a kernel's arguments, their memory layouts, launch settings ("schedules"), and the expected outputs."""
