"""Runs a compiled program, with both roles in one process; and the times of its ops."""
