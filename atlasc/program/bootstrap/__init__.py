"""The bootstrap of the project's engines: its parameters, its polynomial, its matrices, its record.

See docs/bootstrapping.md.
"""
