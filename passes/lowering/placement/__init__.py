"""Exact bootstrap placement on an abstract graph of values with levels.

`graph` states the problem, `placement` solves it by `elimination` of (min,+) tables (`min_plus`).
"""
