"""Engines of the runtime library, in this process."""
