"""Polynomials that replace functions: algorithms, fits, settings and recipes."""
