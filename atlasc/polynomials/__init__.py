"""Polynomials in the place of functions: algorithms, fits, settings and recipes."""
