"""Execution of test cases on devices, and in the interpreter with instrumentation."""
