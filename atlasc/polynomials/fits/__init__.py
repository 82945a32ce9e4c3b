"""Chebyshev fits of scalar functions."""
