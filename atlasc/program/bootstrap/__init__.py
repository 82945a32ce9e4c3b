"""The bootstrap of atlasc's engines: its parameters, polynomial, matrices and primitives.

See docs/bootstrapping.md.
"""
