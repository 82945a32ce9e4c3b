"""Passes from polynomials to packed ciphertexts: folding, layouts, levels, bootstraps, keys."""
