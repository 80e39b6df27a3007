"""Interpreter runtime: the interpreter as a device."""
