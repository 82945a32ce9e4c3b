"""Kernels: how a macro op of the ckks level becomes an engine's primitives."""
