"""Degrees and bootstraps chosen together, by predicted seconds."""
