"""Exact bootstrap placement on an abstract graph of values with levels."""
