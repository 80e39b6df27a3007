"""Execution of a test case on a device, or in the interpreter with instrumentation."""
