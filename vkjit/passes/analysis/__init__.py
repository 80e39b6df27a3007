"""Analyses: facts about the IR that transforms rely on. They change nothing."""
