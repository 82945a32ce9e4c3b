"""Compiler passes of atlasc: frontend, approximation, search and lowering, one pass a file."""
