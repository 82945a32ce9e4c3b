"""Kernels: each turns a macro op of the ckks level into an engine's primitives.

Comments such as ``# [batch, tokens, heads, features]`` beside a line say what the slots of a
ciphertext hold, in the axes of its layout. An axis in parentheses holds copies.
"""
